#pragma once
#include <filesystem>
#include <map>
#include <string>

#include <ATen/core/Tensor.h>

namespace composer::test {

// All tensors of a safetensors file of F64, F32 and I64, on the host. Throws std::runtime_error.
std::map<std::string, at::Tensor> read_safetensors(const std::filesystem::path& file);

}  // namespace composer::test
