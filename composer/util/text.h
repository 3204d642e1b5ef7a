#pragma once
#include <sstream>
#include <string>

#include "composer/core/export.h"

namespace composer::util {

// Streams and numbers of every text that is kept, sent, compared or shown: whatever the locale of the program, no
// digits are grouped, and the decimal separator is a point. scripts/layers.py lets nobody use those of the standard
// library.
struct COMPOSER_EXPORT OutText : std::ostringstream {
  OutText();
};
struct COMPOSER_EXPORT InText : std::istringstream {
  explicit InText(std::string text);
};

// What std::snprintf writes.
[[gnu::format(printf, 1, 2)]] COMPOSER_EXPORT std::string printed(const char* format, ...);

}  // namespace composer::util
