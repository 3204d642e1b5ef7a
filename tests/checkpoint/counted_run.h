#pragma once
#include <cstdint>
#include <memory>
#include <optional>

#include "composer/core/run.h"
#include "composer/core/state.h"

namespace composer::saving {

// A run without a trainer: a test says which weights it has, and where it is.
struct CountedRun final : Run {
  StateDict snapshot(bool) const override { return {}; }
  std::uint64_t weights_version() const override { return weights; }
  IntervalMoment moment(Event) const override { return at; }
  bool interrupted() const override { return is_interrupted; }
  std::optional<Seconds> time_left() const override { return std::nullopt; }
  void load(const LoadOptions&) override {}

  std::uint64_t weights = 1;
  IntervalMoment at;
  bool is_interrupted = false;
};

// At this batch, after those ends of epochs.
inline State state_at(const std::shared_ptr<CountedRun>& run, std::int64_t batch, std::int64_t epoch = 0) {
  State state;
  state.run = std::shared_ptr<Run>(run);
  state.timestamp.batch = batch;
  state.timestamp.epoch = epoch;
  state.previous_timestamp = state.timestamp;
  return state;
}

}  // namespace composer::saving
