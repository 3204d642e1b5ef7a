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
  Time interval = "25ba";  // in ep or ba, >= 1
  // Layers whose name contains one of these are left out: {"layer3", "bn"}.
  std::vector<std::string> ignore_module_types = {};
};

// Four numbers of a tensor [..., C], each a mean over all its rows of C elements.
struct ActivationStatistics {
  at::Tensor l2_norm;   // the norm of a row
  at::Tensor average;   // its mean
  at::Tensor kurtosis;  // E[(x - mean)^4] / E[(x - mean)^2]^2; 3 for normally distributed numbers, 1 is the least
  at::Tensor max;       // its maximum
};
// Of any floating-point tensor with elements; 0-d floats on its device, without gradients.
COMPOSER_EXPORT ActivationStatistics activation_statistics(const at::Tensor& tensor);

// Logs in the first microbatch of each batch that is due, or of each epoch, how the activations of the model are
// distributed: activations/<statistic>/<layer>_input.0 and activations/<statistic>/<layer>_output.0, where the
// statistic is l2_norm, average, kurtosis or max, and a layer is a module with parameters or buffers of its own, which
// is recognised by the operators that use them. The numbers are computed while forward runs and stay on the device.
// Throws ConfigError from the constructor.
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
  LastBatch last_batch_;              // in which something was logged
  std::unique_ptr<Watched> watched_;  // during a forward that is due
  bool has_shown_ = false;            // some batch that was due
  bool has_told_ = false;             // that a later one has not
};

}  // namespace composer::callbacks
