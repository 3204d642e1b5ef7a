#pragma once
#include <cstddef>
#include <string_view>

#include <ATen/core/Tensor.h>

namespace composer::formats {

// The names of dtypes in files: those of safetensors, and C128.
at::ScalarType scalar_type(std::string_view dtype);  // throws CheckpointError if unknown
std::string_view dtype_name(at::ScalarType type);    // empty if it has no name

// Returns an uninitialised tensor. Requests large pages for large ones, because new memory is mapped page by page as it
// is filled.
at::Tensor new_tensor(at::IntArrayRef shape, at::ScalarType type);

// Returns the tensor contiguous in host memory; without a copy if it is so already.
at::Tensor on_host(const at::Tensor& tensor);

// Using a bool whose byte is neither 0 nor 1 is undefined behaviour.
bool are_bools(const char* bytes, std::size_t size);

}  // namespace composer::formats
