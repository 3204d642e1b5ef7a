#pragma once
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/by_name.h"
#include "composer/core/callback.h"
#include "composer/core/empty_options.h"
#include "composer/core/export.h"
#include "composer/core/last_batch.h"
#include "composer/core/time.h"

namespace composer::callbacks {

struct ActivationMonitorOptions {
  [[no_unique_address]] ByName by_name = {};
  // How often activations are logged, in ep or ba, >= 1: in the first microbatch of the batch or epoch. Below 10ba the
  // constructor warns, because of the cost.
  Time interval = "25ba";
  // Layers whose name contains one of these texts are left out, for example {"layer3", "bn"}.
  std::vector<std::string> ignore_module_types = {};
};

// Four statistics of a tensor [..., C], each a mean over all rows of C elements.
struct ActivationStatistics {
  at::Tensor l2_norm;  // mean of the rows' L2 norms
  at::Tensor average;  // mean of the rows' means
  // Mean of the rows' E[(x - mean)^4] / E[(x - mean)^2]^2; 3 for normally distributed numbers, at least 1.
  at::Tensor kurtosis;
  at::Tensor max;  // mean of the rows' maxima
};
// Accepts any floating-point tensor with elements; returns 0-d floats on its device, without gradients.
COMPOSER_EXPORT ActivationStatistics activation_statistics(const at::Tensor& tensor);

// Logs how the activations of the model are distributed, in the first microbatch of each batch that is due, or of each
// epoch: activations/<statistic>/<layer>_input.0 and activations/<statistic>/<layer>_output.0, where the statistic is
// l2_norm, average, kurtosis or max. A layer is a module with parameters or buffers of its own, which is recognised by
// the operators that use them. The numbers are computed during the forward pass and stay on the device. The constructor
// throws ConfigError for invalid options.
class COMPOSER_EXPORT ActivationMonitor final : public Callback {
 public:
  explicit ActivationMonitor(ActivationMonitorOptions options = {});
  explicit ActivationMonitor(EmptyOptions) : ActivationMonitor() {}
  ~ActivationMonitor() override;
  ActivationMonitor(ActivationMonitor&&) noexcept;
  StateDict local_hparams() const override;

  void fit_start(const State& state, Logger& logger) override;
  void before_forward(const State& state, Logger& logger) override;
  void after_forward(const State& state, Logger& logger) override;
  void close(const State& state, Logger& logger) override;

 private:
  struct Watched;
  bool is_due(const Timestamp& now) const;

  ActivationMonitorOptions options_;
  LastBatch last_batch_;              // the last batch in which something was logged
  std::unique_ptr<Watched> watched_;  // set during a forward pass that is due
  bool has_shown_ = false;            // whether any batch that was due has shown activations
  bool has_told_ = false;             // whether a warning was given that a later batch has shown none
};

}  // namespace composer::callbacks
