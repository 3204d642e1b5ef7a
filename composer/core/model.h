#pragma once
#include <optional>

#include <torch/nn/module.h>  // the one heavy header of core: include it to write a model, not to use one

#include "composer/core/export.h"
#include "composer/core/loss_weight.h"
#include "composer/core/metric.h"
#include "composer/core/tensors.h"

namespace composer {

class StateDict;

// A trainable model: a torch module that computes its own loss. Only forward() and loss() must be written.
class COMPOSER_EXPORT Model : public torch::nn::Module {
 public:
  using Batch = composer::Batch;
  using Outputs = composer::Outputs;
  using Losses = composer::Losses;
  using Metrics = composer::Metrics;

  ~Model() override;

  virtual Outputs forward(const Batch& batch) = 0;
  // The losses of one microbatch, as means over loss_weight().
  virtual Losses loss(const Outputs& outputs, const Batch& batch) = 0;
  // The divisor of the means that loss() returns, for any part of a batch: microbatches and ranks are weighted by it.
  // By default it is the number of samples; a loss that ignores targets or weights classes counts them: return
  // target_weight(batch["target"]). It is called on the host, before algorithms change targets, and must not read a
  // tensor on a device. If a part has a weight of 0 that is not known on the host, its backward pass starts with a loss
  // of 0: if loss() uses parameters itself, their gradients must be finite, so divide by counts.clamp_min(1).
  virtual LossWeight loss_weight(const Batch& batch) const;

  // The outputs for metrics, without gradients and with all modules in evaluation mode. In evaluation `outputs` is
  // null; for training metrics it is set. The function must either always return `outputs`, as by default, or always
  // run a forward pass of its own.
  virtual Outputs eval_forward(const Batch& batch, const Outputs* outputs);
  virtual Metrics get_metrics(bool is_train) const;
  virtual void update_metric(const Batch& batch, const Outputs& outputs, Metric& metric);
  // Floating-point operations of forward and backward for this batch, if known; SpeedMonitor reports them.
  virtual std::optional<double> flops_per_batch(const Batch& batch) const;
  // Its sizes and other options by name ("layers"), like Callback::local_hparams(). Nothing by default.
  virtual StateDict local_hparams() const;
};

}  // namespace composer
