#include "composer/tuning/pace.h"

namespace composer {
namespace {

constexpr double kLate = 1.5;  // times the promised time
constexpr int kWindowSteps = 20;
constexpr double kWindowSeconds = 5;
constexpr int kMostWindowSteps = 1000;  // in a window

}  // namespace

void Pace::promise(double seconds, std::int64_t elements) {
  *this = Pace();
  promised_ = seconds;
  elements_ = elements;
}

void Pace::add(double seconds) {
  ++all_;
  late_ += seconds > kLate * promised_ ? 1 : 0;
  seconds_ += seconds;
  if (all_ < kWindowSteps || (seconds_ < kWindowSeconds && all_ < kMostWindowSteps)) return;
  if (!is_late()) end_window();
  all_ = late_ = 0;
  seconds_ = 0;
}

void Pace::end_window() {
  if (2 * late_ <= all_) return late_since_.reset();
  const util::ProcessorTimes now = util::processor_times();
  if (late_since_ && util::disturbed(*late_since_, now)) late_seconds_ = seconds_ / all_;
  late_since_ = now;
}

bool Pace::take_news() { return is_late() && !std::exchange(told_, true); }

}  // namespace composer
