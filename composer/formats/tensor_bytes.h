#pragma once
#include <cstddef>
#include <string_view>

#include <ATen/core/Tensor.h>

namespace composer::formats {

// Dtypes by their names in files: those of safetensors, and C128.
at::ScalarType scalar_type(std::string_view dtype);  // throws CheckpointError if unknown
std::string_view dtype_name(at::ScalarType type);    // empty if files have no name for it

// Returns an uninitialised tensor. Requests huge pages for large tensors, because otherwise each small page is mapped
// when it is first written.
at::Tensor new_tensor(at::IntArrayRef shape, at::ScalarType type);

// Returns the tensor contiguous in host memory; copies it only if it is not so already.
at::Tensor on_host(const at::Tensor& tensor);

// Whether all bytes are 0 or 1. Using a bool with any other byte is undefined behaviour.
bool are_bools(const char* bytes, std::size_t size);

}  // namespace composer::formats
