#pragma once
#include <optional>

#include <torch/nn/module.h>  // the one heavy header of core: include it to write a model, not to use one

#include "composer/core/export.h"
#include "composer/core/loss_weight.h"
#include "composer/core/metric.h"
#include "composer/core/tensors.h"

namespace composer {

class StateDict;

// What is trained: a torch module that knows its loss. Only forward() and loss() must be written.
class COMPOSER_EXPORT Model : public torch::nn::Module {
 public:
  using Batch = composer::Batch;
  using Outputs = composer::Outputs;
  using Losses = composer::Losses;
  using Metrics = composer::Metrics;

  ~Model() override;

  virtual Outputs forward(const Batch& batch) = 0;
  // Of one microbatch, as means over what loss_weight() says.
  virtual Losses loss(const Outputs& outputs, const Batch& batch) = 0;
  // What the means of loss() are over, for any part of a batch: microbatches and ranks are weighed by it. The samples,
  // by default; a loss that ignores targets or weighs classes counts them: return target_weight(batch["target"]); It is
  // asked on the host, before algorithms change targets, and reads no tensor of a device. A part without weight that
  // nobody has counted on the host goes backward with a loss of 0: if loss() uses parameters itself, their gradients
  // must be finite, so divide by counts.clamp_min(1).
  virtual LossWeight loss_weight(const Batch& batch) const;

  // What the metrics see, without gradients and with all modules in evaluation mode: in evaluation, and with `outputs`
  // given for metrics of training. Either always returns these, as by default, or always runs a forward of its own.
  virtual Outputs eval_forward(const Batch& batch, const Outputs* outputs);
  virtual Metrics get_metrics(bool is_train) const;
  virtual void update_metric(const Batch& batch, const Outputs& outputs, Metric& metric);
  // Floating-point operations of forward and backward over this batch, if known: SpeedMonitor reports them.
  virtual std::optional<double> flops_per_batch(const Batch& batch) const;
  // Its sizes and other options by name ("layers"), as Callback::local_hparams(). Nothing by default.
  virtual StateDict local_hparams() const;
};

}  // namespace composer
