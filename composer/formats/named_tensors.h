#pragma once
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace composer::formats {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

}  // namespace composer::formats
