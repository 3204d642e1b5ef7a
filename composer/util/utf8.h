#pragma once
#include <cstddef>
#include <string>
#include <string_view>

#include "composer/core/export.h"

namespace composer::util {

// The length in bytes of the first character of `text`; 0 if that is not valid UTF-8.
COMPOSER_EXPORT std::size_t utf8_length(std::string_view text);

COMPOSER_EXPORT bool is_utf8(std::string_view text);

// The text, where U+FFFD replaces what is not UTF-8: one for each beginning of a character, or byte that begins none.
COMPOSER_EXPORT std::string valid_utf8(std::string_view text);

}  // namespace composer::util
