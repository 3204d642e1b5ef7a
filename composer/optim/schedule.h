#pragma once
#include <cstdint>
#include <functional>
#include <optional>

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

}  // namespace composer::optim
