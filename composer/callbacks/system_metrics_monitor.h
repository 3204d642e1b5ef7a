#pragma once
#include <memory>

#include "composer/core/callback.h"
#include "composer/core/empty_options.h"
#include "composer/core/export.h"
#include "composer/core/time.h"

namespace composer::callbacks {

struct SystemMetricsMonitorOptions {
  // Keys of a GPU's metrics. true: <key>_rank_<rank>; false: min_<key>_rank_<rank> and max_<key>_rank_<rank>.
  bool log_all_data = false;
  Seconds sample_interval = Seconds(1);  // 0.001 to 86,400 s between two samples
};

// Logs how busy the machine is: processors, memory, disk, network and, on CUDA devices, the GPU. A background thread
// takes the samples. Each is logged once, at the next BATCH_START, EVAL_BATCH_START or PREDICT_BATCH_START.
class COMPOSER_EXPORT SystemMetricsMonitor final : public Callback {
 public:
  explicit SystemMetricsMonitor(SystemMetricsMonitorOptions options = {});
  explicit SystemMetricsMonitor(EmptyOptions) : SystemMetricsMonitor() {}
  ~SystemMetricsMonitor() override;
  SystemMetricsMonitor(SystemMetricsMonitor&&) noexcept;
  StateDict local_hparams() const override;

  void init(const State& state, Logger& logger) override;
  void batch_start(const State& state, Logger& logger) override;
  void eval_batch_start(const State& state, Logger& logger) override;
  void predict_batch_start(const State& state, Logger& logger) override;
  void close(const State& state, Logger& logger) override;

 private:
  class Sampler;
  SystemMetricsMonitorOptions options_;
  std::unique_ptr<Sampler> sampler_;  // from INIT to close()
};

}  // namespace composer::callbacks
