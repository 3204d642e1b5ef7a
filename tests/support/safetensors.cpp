#include "tests/support/safetensors.h"

#include "composer/formats/safetensors.h"

namespace composer::test {

std::map<std::string, at::Tensor> read_safetensors(const std::filesystem::path& file) {
  std::map<std::string, at::Tensor> tensors;
  for (auto& [name, tensor] : formats::SafetensorsFile(file).read_all()) tensors.emplace(name, std::move(tensor));
  return tensors;
}

}  // namespace composer::test
