#pragma once
#include <cstdint>
#include <functional>
#include <optional>

#include "composer/core/export.h"
#include "composer/core/time.h"

namespace composer::optim {

// What a learning rate depends on: where training is, and how long it and its epochs are.
struct ScheduleContext {
  Timestamp timestamp;
  Time max_duration = Time(0, TimeUnit::EPOCH);
  std::optional<std::int64_t> dataloader_len;  // batches an epoch, if known
  double scale_schedule_ratio = 1;             // stretches the schedule, without its warm-up
};

// A multiplier of the optimizer's learning rates: a pure function, so there is nothing to step, save or replay.
using Scheduler = std::function<double(const ScheduleContext&)>;

// `time` as a count of what training counts in this run: a share of a run of epochs, and epochs, become batches; a
// share of any other run is counted in that run's unit. All but shares are stretched by `ratio`; fractions are cut off.
// Throws ConfigError for seconds, and where the length of an epoch is needed but unknown.
COMPOSER_EXPORT Time resolve(Time time, const ScheduleContext& context, double ratio);

}  // namespace composer::optim
