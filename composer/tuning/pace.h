#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

#include "composer/util/processors.h"

namespace composer {

// Compares the time of forward, loss and backward of each microbatch with the time that was measured when the way to
// train was chosen. It reads a clock. Only at the end of a window that was late, it also reads how busy other programs
// are. Internal.
class Pace {
 public:
  using Clock = std::chrono::steady_clock;

  // From now on, a microbatch with so many elements should take `seconds`. Microbatches of other sizes are not
  // compared.
  void promise(double seconds, std::int64_t elements);
  bool has_promise() const { return promised_ > 0; }

  // Called before and after a microbatch with so many elements.
  void start(std::int64_t elements) {
    compares_ = elements == elements_;
    started_ = Clock::now();
  }
  void stop() {
    if (std::exchange(compares_, false)) add(std::chrono::duration<double>(Clock::now() - started_).count());
  }
  void add(double seconds);  // adds the time of one microbatch of that size

  // Whether two windows in a row were late, and other programs disturbed the second one. A window is late if most of
  // its microbatches took more than one and a half times the promised time. Without a disturbance, the trial was only
  // faster than training is. A window lasts at least 20 microbatches and 5 seconds, or 1000 microbatches. The result
  // stays true until the next promise.
  bool is_late() const { return late_seconds_ > 0; }
  double late_seconds() const { return late_seconds_; }  // mean time of a microbatch in the late window
  double promised() const { return promised_; }
  bool take_news();  // true once, after it has become late

 private:
  void end_window();

  double promised_ = 0;
  std::int64_t elements_ = -1;
  Clock::time_point started_;
  int all_ = 0, late_ = 0;  // microbatches in this window
  double seconds_ = 0;      // time of the microbatches in this window
  double late_seconds_ = 0;
  std::optional<util::ProcessorTimes> late_since_;  // end of the last window, if that was late
  bool compares_ = false;                           // from start() to stop(): whether this microbatch is compared
  bool told_ = false;
};

}  // namespace composer
