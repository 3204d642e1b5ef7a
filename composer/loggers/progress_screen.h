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

// The bottom line of a terminal, which is redrawn, with finished lines above it. If lines cannot be redrawn, every line
// remains, and lines are less frequent.
class ProgressScreen {
 public:
  ProgressScreen(TextStream stream, Terminal terminal, Seconds redraw_interval, Seconds line_interval);

  double now() const { return terminal_.clock(); }
  bool interactive() const { return terminal_.interactive; }
  bool due() const { return now() >= next_; }              // whether the interval has passed; reads the clock
  bool crowded() const { return now() < crowded_until_; }  // whether keep() was called very recently
  void wait() { next_ = now() + interval_; }               // restarts the interval
  void show(const ProgressLine& line);                     // shows the line until the next call
  void keep(const ProgressLine& line);                     // replaces the shown line by one that remains
  void clear();                                            // removes the shown line
  void leave();  // lets the shown line remain, so that other output begins a new line

 private:
  template <class Write>
  void draw(const Write& write) const;  // warnings of other threads wait meanwhile
  TextStream stream_;
  Terminal terminal_;
  double moment_, interval_;             // shortest time in seconds between two kept lines, and between two shown lines
  double next_ = 0, crowded_until_ = 0;  // times on the clock
  bool shown_ = false;                   // whether the cursor is at the end of a line that can be redrawn
  std::optional<RedrawnLine> line_;  // unset unless lines can be redrawn; the last member, because it uses the others
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
