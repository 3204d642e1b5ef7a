#pragma once
#include <functional>
#include <string>
#include <string_view>

#include "composer/core/export.h"
#include "composer/loggers/text_stream.h"

namespace composer::loggers {

// The properties of the terminal that a progress bar draws on. Set them for a custom display, and in tests.
struct COMPOSER_EXPORT Terminal {
  bool interactive = false;  // whether lines can be redrawn
  bool utf8 = false, colors = false;
  std::function<int()> columns;   // called at each redraw
  std::function<double()> clock;  // monotonic, in seconds

  // The properties of the stream. A pipe or a file is not interactive, nor is TERM=dumb. NO_COLOR switches colors off.
  // UTF-8 is used if the environment says so.
  static Terminal of(const TextStream& stream);
};

// The number of columns of a UTF-8 text; control characters take none.
COMPOSER_EXPORT int columns_of(std::string_view text);

// The text without control characters, cut off after `columns`; without UTF-8, ? replaces non-ASCII characters.
COMPOSER_EXPORT std::string printable(std::string_view text, bool utf8, int columns = 1'000'000);

}  // namespace composer::loggers
