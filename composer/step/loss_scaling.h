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

// Whether losses are scaled in this precision, or because options of a scale are given.
bool scales_losses(Precision precision, const std::optional<optim::GradScalerOptions>& options);

// Multiplies losses by a scale where needed, so that gradients in half precision do not underflow. The scale outlives
// the fits that use it.
class LossScaling {
 public:
  explicit LossScaling(State& state) : state_(state) {}

  // From now on, scales losses as the precision or the options say. An existing scale keeps its value.
  void use(Precision precision, const std::optional<optim::GradScalerOptions>& options);
  bool is_on() const { return is_on_; }
  bool has_scale() const { return scaler_.has_value(); }  // whether losses were ever scaled

  at::Tensor scale(const at::Tensor& loss) const { return is_on_ ? scaler_->scale(loss) : loss; }
  // Divides gradients of the optimizer's parameters by the scale, if scaling is on. The result is on the device, and >
  // 0 if a gradient is not finite.
  const at::Tensor& unscale();
  // The optimizer's step with the gradients that `closure` makes. If scaling is on, the step is skipped if a gradient
  // is not finite.
  void step(const std::function<at::Tensor()>& closure);

  void visit_state(StateVisitor& visit);  // without a scale, a loaded one is only checked

 private:
  State& state_;
  std::optional<optim::GradScaler> scaler_;
  bool is_on_ = false;
};

}  // namespace composer
