#pragma once
#include <cstdint>
#include <memory>

#include "composer/core/callback.h"
#include "composer/core/empty_options.h"
#include "composer/core/export.h"

namespace composer::callbacks {

struct OptimizerMonitorOptions {
  bool log_optimizer_metrics = true;     // norms of moments, parameters and updates; false: of gradients only
  std::int64_t batch_log_interval = 10;  // in batches; >= 1
  bool log_cosines = false;   // cosines of gradients with moments and with updates; needs log_optimizer_metrics
  bool per_parameter = true;  // false: global norms only, and no cosines
};

// Logs the L2 norms of gradients, moments, parameters and updates after every batch_log_interval-th batch, for each
// parameter and over all of them. The norms are computed on the device of the tensors and logged as tensors, so a step
// never waits for them. An update is the change of a parameter by the batch: before minus after. A moment is the
// running mean of gradients in the state of our optimizers (exp_avg or momentum_buffer).
class COMPOSER_EXPORT OptimizerMonitor final : public Callback {
 public:
  explicit OptimizerMonitor(OptimizerMonitorOptions options = {});
  explicit OptimizerMonitor(EmptyOptions) : OptimizerMonitor() {}
  ~OptimizerMonitor() override;
  OptimizerMonitor(OptimizerMonitor&&) noexcept;
  StateDict local_hparams() const override;

  void init(const State& state, Logger& logger) override;         // forgets the parameters of another trainer
  void batch_start(const State& state, Logger& logger) override;  // copies the parameters if the batch will be logged
  void batch_end(const State& state, Logger& logger) override;
  void check_fit(const FitOutline& fit, const State& state) const override;

 private:
  struct Impl;
  OptimizerMonitorOptions options_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace composer::callbacks
