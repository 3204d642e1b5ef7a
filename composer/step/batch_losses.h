#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/logger.h"
#include "composer/core/loss_weight.h"
#include "composer/core/state.h"
#include "composer/step/on_nan.h"

namespace composer {

// The loss to differentiate: "total", or else the sum of all losses, each as a mean.
at::Tensor total_of(const Losses& losses);

// The losses of a batch. Adds up state.batch_loss from the losses of its microbatches, logs it, and watches for NaN.
class BatchLosses {
 public:
  BatchLosses(State& state, Logger& logger) : state_(state), logger_(logger) {}

  void set_on_nan(OnNaN what) { on_nan_ = what; }
  // Whether a warning is due when losses are NaN: steps with scaled losses skip what overflows.
  void expect_nan(bool expected) { expects_nan_ = expected; }
  // Whether stop_if_nan() may throw in this run.
  bool stops_if_nan() const { return on_nan_ == OnNaN::STOP && state_.run && state_.device.is_cpu(); }
  // To be called after the loss of a microbatch, whose total is `total`, was computed. Throws Error if it is NaN and
  // this ends the run. A loss on a device is not read.
  void stop_if_nan(const at::Tensor& total) const;
  // To be called when an epoch or a fit ends. Throws Error if the last loss is NaN on a device, and this ends the run.
  void stop_if_last_is_nan() const;
  // Adds the losses of a microbatch: state.loss, whose total is `total`, multiplied by `share`.
  void add(const at::Tensor& total, const LossWeight& share);
  // To be called after the batch, before it is counted. Warns about the first loss that is NaN, if the check costs
  // nothing. Returns what was logged of the losses; valid until the next call.
  std::span<const LogEntry> log(std::int64_t microbatch_size);
  // At the end of a fit, warns if the last losses were NaN: the first warning may be hours old.
  void warn_of_nan() const;

 private:
  // The first batch of the latest row of NaN losses; unset if the last loss is a number. On a device, waits for the
  // device and checks the last loss only.
  std::optional<std::int64_t> nan_since() const;
  void add(std::string_view name, const at::Tensor& mean, const LossWeight& share);
  void watch_for_nan();

  State& state_;
  Logger& logger_;
  OnNaN on_nan_ = OnNaN::STOP;
  bool expects_nan_ = false, warned_of_nan_ = false;
  std::optional<std::int64_t> nan_since_;  // the first batch of the current row of NaN losses
  std::vector<std::string> keys_;          // of the losses, as they are logged
  std::vector<LogEntry> entries_;          // kept for its capacity
};

}  // namespace composer
