#include "composer/profiler/schedule.h"

#include "composer/core/error.h"

namespace composer::profiler {
namespace {

constexpr std::int64_t kMost = 1'000'000'000'000;  // so that sums and products of two are not too large

}  // namespace

void check(const Schedule& schedule, const char* who) {
  const auto check_one = [who](const char* name, std::int64_t value, std::int64_t least, std::int64_t most) {
    if (value < least || value > most)
      throw ConfigError(who, ": ", name, " must be from ", least, " to ", most, ", got ", value);
  };
  check_one("skip_first", schedule.skip_first, 0, kMost);
  check_one("wait", schedule.wait, 0, kMost);
  check_one("warmup", schedule.warmup, 0, kMost);
  check_one("active", schedule.active, 1, 1'000'000);
  check_one("repeat", schedule.repeat, 0, 1'000'000);
}

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
