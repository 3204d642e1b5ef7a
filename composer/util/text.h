#pragma once
#include <sstream>
#include <string>

#include "composer/core/export.h"

namespace composer::util {

// Streams and numbers for every text that is stored, sent, compared or shown. They are independent of the program's
// locale: digits are not grouped, and the decimal separator is a point. scripts/layers.py refuses the standard
// library's streams.
struct COMPOSER_EXPORT OutText : std::ostringstream {
  OutText();
};
struct COMPOSER_EXPORT InText : std::istringstream {
  explicit InText(std::string text);
};

// Formats like std::snprintf, in the C locale.
[[gnu::format(printf, 1, 2)]] COMPOSER_EXPORT std::string printed(const char* format, ...);

}  // namespace composer::util
