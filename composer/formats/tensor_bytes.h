#pragma once
#include <cstddef>
#include <string_view>

#include <ATen/core/Tensor.h>

namespace composer::formats {

// The names of dtypes in files, as safetensors has them, and C128 beside.
at::ScalarType scalar_type(std::string_view dtype);  // CheckpointError for an unknown one
std::string_view dtype_name(at::ScalarType type);    // empty for one without a name

// Not filled. Large ones ask the system for large pages, because memory that is new to the process is mapped page by
// page as it is filled.
at::Tensor new_tensor(at::IntArrayRef shape, at::ScalarType type);

// Its elements, contiguous in the host's memory: itself if it is.
at::Tensor on_host(const at::Tensor& tensor);

// Any other byte than 0 and 1 as a bool is undefined behaviour wherever it is used.
bool are_bools(const char* bytes, std::size_t size);

}  // namespace composer::formats
