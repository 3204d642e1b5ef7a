#include "composer/core/interval.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "composer/core/error.h"

namespace composer {
namespace {

Boundary boundary_of(TimeUnit unit) {
  if (unit == TimeUnit::EPOCH) return Boundary::EPOCH;
  return unit == TimeUnit::ITERATION ? Boundary::ITERATION : Boundary::BATCH;
}

std::int64_t floor_div(std::int64_t a, std::int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

bool crossed(std::int64_t every, std::int64_t before, std::int64_t now) {
  return every > 0 && floor_div(before, every) != floor_div(now, every);
}

// Rounds up. A length that is too large to be counted becomes longer than any run.
Time rounded_up(double length, TimeUnit unit) {
  constexpr double kMost = 9.2e18;
  return Time(static_cast<std::int64_t>(std::ceil(std::min(length, kMost))), unit);
}

// The length of this share of the run, in batches, samples, tokens or seconds.
std::optional<Time> length_of(double share, const IntervalMoment& moment) {
  if (!moment.max_duration) throw ConfigError("interval: ", share, "dur needs a max_duration");
  if (!moment.dataloader_len)
    throw ConfigError("interval: ", share, "dur needs a loader whose length is known; give it in ba, sp or tok");
  const Time run = *moment.max_duration;
  const double part = run.as_double() * share;
  switch (run.unit()) {
    case TimeUnit::EPOCH:  // this order of factors determines how 0.1 of 3 epochs of 10 batches is rounded
      return rounded_up(part * static_cast<double>(*moment.dataloader_len), TimeUnit::BATCH);
    case TimeUnit::BATCH:
    case TimeUnit::SAMPLE:
    case TimeUnit::TOKEN:
    case TimeUnit::SECOND:
      return rounded_up(part, run.unit());
    default:
      return std::nullopt;  // due at the end only
  }
}

// Of a batch, in batches since the run began, if all epochs have the same length.
double place(const Timestamp& time, double epoch) {
  return static_cast<double>(time.epoch) * epoch + static_cast<double>(time.batch_in_epoch);
}

// Whether a multiple of this number of epochs was crossed.
bool crossed_epochs(double epochs, const IntervalMoment& moment) {
  if (moment.boundary != Boundary::BATCH) return false;
  if (!moment.dataloader_len)
    throw ConfigError("interval: ", epochs, "ep needs a loader whose length is known; give it in ba, sp or tok");
  const auto epoch = static_cast<double>(*moment.dataloader_len);
  constexpr double kRounding = 1e-9;  // a product such as 0.1 * 30 may be a little larger than it is
  const auto count = [&](const Timestamp& time) {
    return std::floor(place(time, epoch) / (epochs * epoch) + kRounding);
  };
  return count(moment.previous) != count(moment.now);
}

}  // namespace

std::string to_string(const Interval& interval) {
  if (interval.function()) return "a function";
  if (interval.epochs() == 0) return to_string(interval.time());
  std::string text = to_string(Time::from(interval.epochs(), TimeUnit::DURATION));
  return text.replace(text.size() - to_string(TimeUnit::DURATION).size(), std::string::npos,
                      to_string(TimeUnit::EPOCH));
}

bool is_due(const Interval& interval, Event event, const State& state, const IntervalMoment& moment) {
  if (const Interval::Function* function = interval.function()) return (*function)(event, state);
  if (interval.epochs() == 0) return interval_due(interval.time(), moment);
  if (moment.last && moment.now.batch != moment.last_due_batch) return true;
  return crossed_epochs(interval.epochs(), moment);
}

bool interval_due(Time interval, const IntervalMoment& moment) {
  const bool share = interval.unit() == TimeUnit::DURATION;
  if (!(interval.as_double() > 0)) return false;
  if (moment.last && moment.now.batch != moment.last_due_batch) return true;
  if (moment.boundary != boundary_of(interval.unit())) return false;
  const std::optional<Time> length = share ? length_of(interval.as_double(), moment) : interval;
  if (!length) return false;
  return crossed(length->count(), moment.previous.get(length->unit()).count(), moment.now.get(length->unit()).count());
}

}  // namespace composer
