#pragma once
#include <functional>
#include <string>

#include "composer/core/export.h"

namespace composer {

// The bottom line of a terminal, which is redrawn, for example by a progress bar. While it lives, warnings of any
// thread start on a line of their own: before one is written to stderr, `remove` is called on the thread that warns.
class COMPOSER_EXPORT RedrawnLine {
 public:
  explicit RedrawnLine(std::function<void()> remove);
  ~RedrawnLine();
  RedrawnLine(const RedrawnLine&) = delete;
  RedrawnLine& operator=(const RedrawnLine&) = delete;

  void draw(const std::function<void()>& write) const;  // no warning is written during the call

 private:
  friend void warn(const std::string& text);
  static void write_below(const std::function<void()>& write);
  std::function<void()> remove_;
};

}  // namespace composer
