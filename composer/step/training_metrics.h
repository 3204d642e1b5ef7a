#pragma once
#include <span>
#include <utility>

#include "composer/core/logger.h"
#include "composer/core/state.h"
#include "composer/step/metric_set.h"

namespace composer {

// The metrics of training. They use each microbatch as it was before algorithms changed it.
class TrainingMetrics {
 public:
  TrainingMetrics(State& state, Logger& logger) : state_(state), logger_(logger) {}

  void use(MetricSet set) { set_ = std::move(set); }
  const MetricSet& set() const { return set_; }

  void begin_batch() { set_.reset(); }
  void keep_microbatch() {  // keeps state.batch, which is on the device
    if (!set_.empty()) microbatch_ = state_.batch;
  }
  void update();
  void forget_microbatch() { microbatch_.clear(); }
  // `world`: the ranks that train; nullptr if this one is alone.
  // Returns what was logged; valid until the next call.
  std::span<const LogEntry> report(dist::World* world) {
    set_.report(state_, logger_, /*keep_if_empty=*/true, world);
    return set_.reported();
  }

 private:
  Outputs outputs();

  State& state_;
  Logger& logger_;
  MetricSet set_;
  Batch microbatch_;             // empty if there are no metrics
  bool reuses_outputs_ = false;  // whether Model::eval_forward returns the outputs of training
};

}  // namespace composer
