#pragma once
// What every rank has of a model, and whether it is still the same.
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace composer {

// By tensor: the sum of its bytes, taken as whole numbers. It depends neither on the order of additions nor on the
// memory layout of dense tensors of one layout, so equal tensors have equal sums on every machine. What is not strided
// has 0. One read of the host for all tensors of a device.
std::vector<std::int64_t> sums_of_bits(const std::vector<at::Tensor>& tensors);

// The largest difference between numbers at the same place, as a share of the largest of `a`: 0 for equal ones, also
// where both are NaN; infinite where one is.
double relative_difference(const at::Tensor& a, const at::Tensor& b);

}  // namespace composer
