#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "composer/core/logger.h"

namespace composer {

// A logged value on the host.
using Scalar = std::variant<std::int64_t, double, bool, std::string>;

// Returns the element of a tensor. Reads it in place on the CPU, without an operator; waits for other devices.
// Throws DataError unless the tensor has exactly one real element.
Scalar read_scalar(const at::Tensor& tensor);
Scalar read_scalar(const LogValue& value);
LogValue value_on_host(const LogValue& value);  // reads a tensor as read_scalar() does; other values are unchanged

// Throws DataError, which contains the key, for a tensor that read_scalar() would reject.
void check_scalar(std::string_view key, const at::Tensor& tensor);

}  // namespace composer
