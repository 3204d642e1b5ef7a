#include "composer/dist/awake_clock.h"

#include <algorithm>

namespace composer::dist {

void AwakeClock::advance(Time now) {
  const Time step = std::max(now - now_.real, Time(0));
  now_.real += step;
  now_.awake += std::min(step, longest_step_);
  if (step <= longest_step_) return;
  suspended_ = step;
  suspended_until_ = now_.awake;
}

std::optional<AwakeClock::Time> AwakeClock::suspended_within(Time ago) const {
  return now_.awake - suspended_until_ < ago ? std::optional(suspended_) : std::nullopt;
}

}  // namespace composer::dist
