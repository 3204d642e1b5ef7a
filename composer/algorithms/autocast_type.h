#pragma once
#include <optional>

#include <ATen/core/Tensor.h>

namespace composer::algorithms {

// The shorter type that autocast gives inputs on this tensor's device; unset if autocast is off.
std::optional<at::ScalarType> autocast_type(const at::Tensor& input);

}  // namespace composer::algorithms
