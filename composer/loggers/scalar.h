#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "composer/core/logger.h"

namespace composer::loggers {

// A logged value that is on the host.
using Scalar = std::variant<std::int64_t, double, bool, std::string>;

// The one element of a tensor. On the CPU it is read in place, without an operator; another device is waited for.
// Throws DataError unless the tensor has exactly one real element.
Scalar read_scalar(const at::Tensor& tensor);
Scalar read_scalar(const LogValue& value);

// Throws DataError, with the key, for a tensor that read_scalar would refuse.
void check_scalar(std::string_view key, const at::Tensor& tensor);

}  // namespace composer::loggers
