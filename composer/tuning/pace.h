#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

#include "composer/util/processors.h"

namespace composer {

// Compares forward, loss and backward of each microbatch with the time that was measured when the way to train was
// chosen. It reads a clock, and only at the end of a window that was late what other programs do. Internal.
class Pace {
 public:
  using Clock = std::chrono::steady_clock;

  // From now on: seconds for a microbatch with so many elements. Microbatches of another size are not compared.
  void promise(double seconds, std::int64_t elements);
  bool has_promise() const { return promised_ > 0; }

  // Around a microbatch with so many elements.
  void start(std::int64_t elements) {
    compares_ = elements == elements_;
    started_ = Clock::now();
  }
  void stop() {
    if (std::exchange(compares_, false)) add(std::chrono::duration<double>(Clock::now() - started_).count());
  }
  void add(double seconds);  // of one microbatch of that size

  // Whether in two windows one after the other most microbatches took more than one and a half times as long as was
  // promised, and other programs disturbed the second one: without them, the trial was only kinder than training is. A
  // window lasts at least 20 microbatches and 5 seconds, or 1000 microbatches. It stays so until something else is
  // promised.
  bool is_late() const { return late_seconds_ > 0; }
  double late_seconds() const { return late_seconds_; }  // what those of that window took, in the mean
  double promised() const { return promised_; }
  bool take_news();  // true once, when it has become late

 private:
  void end_window();

  double promised_ = 0;
  std::int64_t elements_ = -1;
  Clock::time_point started_;
  int all_ = 0, late_ = 0;  // in this window
  double seconds_ = 0;      // likewise
  double late_seconds_ = 0;
  std::optional<util::ProcessorTimes> late_since_;  // the end of the last window, if that was late
  bool compares_ = false;                           // from start() to stop()
  bool told_ = false;
};

}  // namespace composer
