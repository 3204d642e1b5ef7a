#pragma once
#include <deque>
#include <string>

#include "composer/core/time.h"
#include "composer/loggers/progress_line.h"
#include "composer/loggers/terminal.h"
#include "composer/loggers/text_stream.h"

namespace composer::loggers {

// The bottom line of a terminal, redrawn now and then, above which finished lines stay. Where nothing can be redrawn,
// each line stays, and they come less often.
class ProgressScreen {
 public:
  ProgressScreen(TextStream stream, Terminal terminal, Seconds redraw_interval, Seconds line_interval);

  double now() const { return terminal_.clock(); }
  bool interactive() const { return terminal_.interactive; }
  bool due() const { return now() >= next_; }              // a look at the clock
  bool crowded() const { return now() < crowded_until_; }  // a line was kept a moment ago
  void wait() { next_ = now() + interval_; }               // as if something had been shown now
  void show(const ProgressLine& line);                     // until something else is
  void keep(const ProgressLine& line);                     // in the place of what is shown
  void clear();                                            // nothing is shown
  void leave();                                            // what is shown stays; others begin a line of their own

 private:
  TextStream stream_;
  Terminal terminal_;
  double moment_, interval_;             // the shortest time between two kept lines, and two shown ones
  double next_ = 0, crowded_until_ = 0;  // on the clock
  bool shown_ = false;                   // the cursor is at the end of a line that may be redrawn
};

// Something that grows, per second of the last few seconds.
class Rate {
 public:
  void add(double seconds, double count);
  double per_second() const;  // 0: not known yet
  void clear() { points_.clear(); }

 private:
  std::deque<std::pair<double, double>> points_;
};

// "18.2k samples/s", or nothing if it is not known.
std::string format_rate(double per_second, const char* unit);

}  // namespace composer::loggers
