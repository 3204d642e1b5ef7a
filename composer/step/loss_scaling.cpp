#include "composer/step/loss_scaling.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <torch/optim/optimizer.h>

#include "composer/core/error.h"
#include "composer/core/state_dict.h"

namespace composer {

void check_precision(Precision precision, at::Device device) {
  if (precision == Precision::AMP_FP16 && device.is_cpu())
    throw ConfigError("precision: amp_fp16 is 50 times slower than fp32 on a CPU; use fp32 or amp_bf16");
}

bool scales_losses(Precision precision, const std::optional<optim::GradScalerOptions>& options) {
  return options || precision == Precision::AMP_FP16;
}

void LossScaling::use(Precision precision, const std::optional<optim::GradScalerOptions>& options) {
  const bool scales = scales_losses(precision, options);
  if (scales) optim::require_skippable(*state_.optimizer, options ? "grad_scaler" : "precision: amp_fp16");
  if (scales && !scaler_) scaler_.emplace(options.value_or(optim::GradScalerOptions{}), state_.device);
  is_on_ = scales;
}

const at::Tensor& LossScaling::unscale() {
  scaler_->unscale(*state_.optimizer);
  return scaler_->found_inf();
}

void LossScaling::step(const std::function<at::Tensor()>& closure) {
  if (!is_on_) {
    state_.optimizer->step(closure);
    return;
  }
  {
    const at::AutoGradMode enable_grad(true);  // like the optimizer's step() for its closure
    closure();
  }
  scaler_->step(*state_.optimizer);
  scaler_->update();
}

void LossScaling::visit_state(StateVisitor& visit) {
  if (visit.is_loading() ? !visit.has("scaler") : !scaler_) return;
  StateVisitor inner = visit.scope("scaler");
  at::Tensor scale = scaler_ ? scaler_->scale_factor() : at::Tensor(),
             growth = scaler_ ? scaler_->growth_tracker() : at::Tensor();
  inner("scale", scale);
  inner("growth_tracker", growth);
  if (visit.is_loading() && scaler_) scaler_->load(scale, growth);
}

}  // namespace composer
