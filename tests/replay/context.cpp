#include <fstream>
#include <stdexcept>
#include <utility>

#include "tests/replay/replay.h"
#include "tests/support/safetensors.h"

namespace composer::replay {

Context::Context(const std::filesystem::path& file) : file_(file) {
  std::ifstream in(file);
  document_ = Json::parse(in, nullptr, /*allow_exceptions=*/false);
  const bool recorded = document_.is_object() && document_.contains("cases") && document_["cases"].is_array();
  if (!recorded) throw std::runtime_error(file.string() + " is no file of recorded cases");
}

const Context::Tensors& Context::tensors(std::string stem) const {
  if (stem.empty()) stem = file_.stem().string();
  auto found = tensors_.find(stem);
  if (found == tensors_.end()) {
    found = tensors_.emplace(stem, test::read_safetensors(file_.parent_path() / (stem + ".safetensors"))).first;
  }
  return found->second;
}

}  // namespace composer::replay
