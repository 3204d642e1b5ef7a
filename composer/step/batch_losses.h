#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/logger.h"
#include "composer/core/loss_weight.h"
#include "composer/core/state.h"

namespace composer {

// What is differentiated: the loss "total", else the sum of all, each as a mean.
at::Tensor total_of(const Losses& losses);

// What a batch costs: state.batch_loss, which is added up from the losses of its microbatches, logged, and watched.
class BatchLosses {
 public:
  BatchLosses(State& state, Logger& logger) : state_(state), logger_(logger) {}

  // Scaled steps skip what overflows, so their losses may be NaN.
  void expect_nan(bool expected) { expects_nan_ = expected; }
  // Of a microbatch: state.loss, whose total is `total`, times its share.
  void add(const at::Tensor& total, const LossWeight& share);
  // After the batch, before it is counted. Warns of the first loss that is NaN, where looking costs nothing.
  void log(std::int64_t microbatch_size);
  // At the end of a fit, in case that nobody saw the warning hours ago: that the last losses were NaN.
  void warn_of_nan() const;

 private:
  // The batch from which on all losses were NaN, up to the last one; unset: that one is a number. On a device, which
  // this waits for, only the last one is looked at.
  std::optional<std::int64_t> nan_since() const;
  void add(std::string_view name, const at::Tensor& mean, const LossWeight& share);
  void watch_for_nan();

  State& state_;
  Logger& logger_;
  bool expects_nan_ = false, warned_of_nan_ = false;
  std::optional<std::int64_t> nan_since_;  // of losses that are NaN one after the other, the first one's batch
  std::vector<std::string> keys_;          // as logged, of the losses
  std::vector<LogEntry> entries_;          // kept for its capacity
};

}  // namespace composer
