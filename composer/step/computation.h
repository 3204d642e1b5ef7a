#pragma once
#include <ATen/core/Tensor.h>

#include "composer/core/loss_weight.h"
#include "composer/core/state.h"
#include "composer/step/loss_scaling.h"

namespace composer {

// Computes a microbatch, which is state.batch.
class Computation {
 public:
  virtual ~Computation() = default;

  // Sets state.outputs. `share`: the fraction of the microbatch in the loss of the batch.
  virtual void forward(const LossWeight& share) = 0;
  virtual bool is_ahead() const { return false; }  // whether forward() has also made the loss and the gradients
  // Sets state.loss.
  virtual void loss() = 0;
  // Adds the gradients of `total` times `share`. `total` is total_of(state.loss).
  virtual void backward(const at::Tensor& total, const LossWeight& share) = 0;
};

// Runs one kernel after the other, as the model's code calls them.
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
