#pragma once
#include <functional>
#include <optional>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "composer/core/state.h"
#include "composer/optim/grad_scaler.h"

namespace composer {

class StateVisitor;

// Throws ConfigError if this device cannot train in this precision.
void check_precision(Precision precision, at::Device device);

// Whether losses are multiplied by a scale, so that gradients in half precision do not underflow. The scale outlives
// the fits that use it.
class LossScaling {
 public:
  explicit LossScaling(State& state) : state_(state) {}

  // From now on, as the precision or the options ask for. A scale that exists stays what it is.
  void use(Precision precision, const std::optional<optim::GradScalerOptions>& options);
  bool is_on() const { return is_on_; }
  bool has_scale() const { return scaler_.has_value(); }  // once losses were to be scaled

  at::Tensor scale(const at::Tensor& loss) const { return is_on_ ? scaler_->scale(loss) : loss; }
  // Where scaling is on: gradients of the optimizer's parameters are divided by the scale. Returns whether one is not
  // finite, on the device: > 0.
  const at::Tensor& unscale();
  // The optimizer's step with the gradients that `closure` makes; where scaling is on, skipped if one is not finite.
  void step(const std::function<at::Tensor()>& closure);

  void visit_state(StateVisitor& visit);  // without a scale, one that is loaded is only checked

 private:
  State& state_;
  std::optional<optim::GradScaler> scaler_;
  bool is_on_ = false;
};

}  // namespace composer
