#pragma once
#include <string>
#include <string_view>

#include "composer/core/logger.h"

namespace composer::loggers {

// Formats a value: 12, 0.5000, True, "text", or the shape of a tensor of several elements. Reads tensors.
std::string format_log_value(const LogValue& value);

// A short form: 0.5000, 1.23e-07, 45.1k (from 10,000 on), nan.
std::string format_short(double value);
std::string format_short(const LogValue& value);
std::string format_unquoted(const LogValue& value);  // like format_short(), but a text is returned without quotes

// 2.5s, 42s, 1:05, 2:03:04, 1d 02:03
std::string format_duration(double seconds);

// `key: value`, quoted where YAML would otherwise read another type.
std::string format_yaml(std::string_view key, const LogValue& value);

}  // namespace composer::loggers
