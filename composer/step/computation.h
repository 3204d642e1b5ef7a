#pragma once
#include <ATen/core/Tensor.h>

#include "composer/core/loss_weight.h"
#include "composer/core/state.h"
#include "composer/step/loss_scaling.h"

namespace composer {

// How a microbatch, which is state.batch, is computed.
class Computation {
 public:
  virtual ~Computation() = default;

  // Makes state.outputs. `share`: what the microbatch counts in the loss of the batch.
  virtual void forward(const LossWeight& share) = 0;
  virtual bool is_ahead() const { return false; }  // forward() has made the loss and the gradients as well
  // Makes state.loss.
  virtual void loss() = 0;
  // Adds the gradients of `total`, which is that of state.loss, times `share`.
  virtual void backward(const at::Tensor& total, const LossWeight& share) = 0;
};

// One kernel after the other, as the model's code asks for them.
class EagerComputation final : public Computation {
 public:
  EagerComputation(State& state, const LossScaling& scaling) : state_(state), scaling_(scaling) {}

  void forward(const LossWeight& share) override;
  void loss() override;
  void backward(const at::Tensor& total, const LossWeight& share) override;

 private:
  State& state_;
  const LossScaling& scaling_;
};

}  // namespace composer
