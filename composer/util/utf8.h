#pragma once
#include <cstddef>
#include <string>
#include <string_view>

#include "composer/core/export.h"

namespace composer::util {

// The length in bytes of the first character of `text`; 0 if the text is empty or does not begin with valid UTF-8.
COMPOSER_EXPORT std::size_t utf8_length(std::string_view text);

COMPOSER_EXPORT bool is_utf8(std::string_view text);

// Replaces invalid bytes by U+FFFD: one for each truncated character, and one for each byte that begins none.
COMPOSER_EXPORT std::string valid_utf8(std::string_view text);

}  // namespace composer::util
