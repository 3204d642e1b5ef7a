#pragma once
#include <deque>
#include <optional>
#include <string>

#include "composer/core/redrawn_line.h"
#include "composer/core/time.h"
#include "composer/loggers/progress_line.h"
#include "composer/loggers/terminal.h"
#include "composer/loggers/text_stream.h"

namespace composer::loggers {

// The bottom line of a terminal, which is redrawn, with finished lines above it. Where lines cannot be redrawn, each
// line remains, and they are less frequent.
class ProgressScreen {
 public:
  ProgressScreen(TextStream stream, Terminal terminal, Seconds redraw_interval, Seconds line_interval);

  double now() const { return terminal_.clock(); }
  bool interactive() const { return terminal_.interactive; }
  bool due() const { return now() >= next_; }              // reads the clock
  bool crowded() const { return now() < crowded_until_; }  // keep() was called very recently
  void wait() { next_ = now() + interval_; }               // restart the interval
  void show(const ProgressLine& line);                     // until the next call
  void keep(const ProgressLine& line);                     // replaces the shown line
  void clear();                                            // removes the shown line
  void leave();                                            // the shown line remains; other output begins a new line

 private:
  template <class Write>
  void draw(const Write& write) const;  // no warning of another thread is written meanwhile
  TextStream stream_;
  Terminal terminal_;
  double moment_, interval_;             // shortest time between two kept lines, and two shown ones, in seconds
  double next_ = 0, crowded_until_ = 0;  // times of the clock
  bool shown_ = false;                   // the cursor is at the end of a line that can be redrawn
  std::optional<RedrawnLine> line_;      // if lines can be redrawn; the last, because it uses the others
};

// The rate of a growing count over the last few seconds.
class Rate {
 public:
  void add(double seconds, double count);
  double per_second() const;  // 0: unknown yet
  void clear() { points_.clear(); }

 private:
  std::deque<std::pair<double, double>> points_;
};

// "18.2k samples/s", or empty if unknown.
std::string format_rate(double per_second, const char* unit);

}  // namespace composer::loggers
