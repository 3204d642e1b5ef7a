#pragma once
#include <filesystem>
#include <map>
#include <string>

#include <ATen/core/Tensor.h>

namespace composer::test {

// All tensors of a safetensors file, by name.
std::map<std::string, at::Tensor> read_safetensors(const std::filesystem::path& file);

}  // namespace composer::test
