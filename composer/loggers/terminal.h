#pragma once
#include <functional>
#include <string>
#include <string_view>

#include "composer/core/export.h"
#include "composer/loggers/text_stream.h"

namespace composer::loggers {

// What a progress bar knows of the place where it draws. For a screen of one's own, and for tests.
struct COMPOSER_EXPORT Terminal {
  bool interactive = false;  // lines can be redrawn
  bool utf8 = false, colors = false;
  std::function<int()> columns;   // asked at each redraw
  std::function<double()> clock;  // seconds, never back

  // A pipe or a file is not interactive, nor is TERM=dumb; no colors with NO_COLOR; UTF-8 if the environment says so.
  static Terminal of(const TextStream& stream);
};

// How many columns a UTF-8 text takes, control characters none.
int columns_of(std::string_view text);

// The text without control characters, and cut off after so many columns; without UTF-8, with ? for what is not ASCII.
std::string printable(std::string_view text, bool utf8, int columns = 1'000'000);

}  // namespace composer::loggers
