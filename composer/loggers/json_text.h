#pragma once
#include <functional>
#include <string>
#include <string_view>

#include "composer/core/scalar.h"
#include "composer/util/utf8.h"

namespace composer::loggers {

// A JSON string with quotes. Bytes that are not UTF-8 become U+FFFD.
std::string json_text(std::string_view text);

using util::valid_utf8;

// {"columns":["a"],"data":[[1.5]]}. Values are formatted by append_json(), or by `value_text` if that is set.
std::string json_text(const LogTable& table, const std::function<std::string(const Scalar&)>& value_text = {});

// Appends a value as JSON. NaN and infinities become the texts "nan", "inf" and "-inf".
void append_json(std::string& line, const Scalar& value);

}  // namespace composer::loggers
