#include "composer/trainer/progress.h"

namespace composer {
namespace {

bool counts(const OptionalTime& length, TimeUnit unit) { return length && length->unit() == unit; }

std::optional<Boundary> boundary_of(Event event) {
  if (event == Event::BATCH_END || event == Event::BATCH_CHECKPOINT) return Boundary::BATCH;
  if (event == Event::EPOCH_END || event == Event::EPOCH_CHECKPOINT) return Boundary::EPOCH;
  if (event == Event::ITERATION_END || event == Event::ITERATION_CHECKPOINT) return Boundary::ITERATION;
  return std::nullopt;
}

}  // namespace

bool Progress::epoch_is_complete() const { return now.batch_in_epoch > 0 && epoch_length == now.batch_in_epoch; }

bool Progress::token_iteration_is_over() const {
  return counts(iteration_length, TimeUnit::TOKEN) && now.token_in_iteration >= iteration_length->count();
}

bool Progress::epoch_iteration_is_over() const {
  return counts(iteration_length, TimeUnit::EPOCH) && now.epoch_in_iteration >= iteration_length->count();
}

std::int64_t Progress::loader_epoch() const {
  return counts(iteration_length, TimeUnit::TOKEN) ? now.epoch + now.iteration : now.epoch;
}

IntervalMoment Progress::moment_of(Event event, std::optional<std::int64_t> dataloader_len) const {
  return {.boundary = boundary_of(event),
          .previous = previous.value_or(now),
          .now = now,
          .max_duration = limit,
          .dataloader_len = dataloader_len};
}

}  // namespace composer
