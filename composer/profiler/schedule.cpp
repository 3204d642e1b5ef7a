#include "composer/profiler/schedule.h"

namespace composer::profiler {

Action action_at(const Schedule& schedule, std::int64_t batch_in_epoch, std::int64_t resumed_at, bool last_of_epoch) {
  const std::int64_t length = schedule.wait + schedule.warmup + schedule.active;
  const std::int64_t since = batch_in_epoch - schedule.skip_first - resumed_at;
  if (since < 0 || (schedule.repeat != 0 && since / length >= schedule.repeat)) return Action::SKIP;
  const std::int64_t place = since % length;
  if (place < schedule.wait) return Action::SKIP;
  if (place < schedule.wait + schedule.warmup) return Action::WARMUP;
  return place == length - 1 || last_of_epoch ? Action::ACTIVE_AND_SAVE : Action::ACTIVE;
}

}  // namespace composer::profiler
