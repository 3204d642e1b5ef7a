#include "composer/optim/grad_scaler.h"

#include <typeinfo>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Type.h>
#include <torch/optim/optimizer.h>

#include "composer/core/error.h"
#include "composer/optim/described_options.h"
#include "composer/optim/skippable_step.h"

namespace composer::optim {

std::vector<Option<GradScalerOptions>> grad_scaler_options() {
  using O = GradScalerOptions;
  return all_options(option("init_scale", &O::init_scale).above(0).finite(),
                     option("growth_factor", &O::growth_factor).at_least(1).finite(),
                     option("backoff_factor", &O::backoff_factor)
                         .must("be > 0 and <= 1", [](double factor) { return factor > 0 && factor <= 1; }),
                     option("growth_interval", &O::growth_interval).at_least(1));
}

SkippableStep::~SkippableStep() = default;

void require_skippable(const Optimizer& optimizer, const char* who) {
  if (dynamic_cast<const SkippableStep*>(&optimizer)) return;
  throw ConfigError(who, ": requires an optimizer that can skip its step on the device (optim::SkippableStep); ",
                    c10::demangle(typeid(optimizer).name()), " cannot, those in composer/optim can");
}

GradScaler::GradScaler(GradScalerOptions options, at::Device device)
    : options_(checked("grad_scaler", options, grad_scaler_options())) {
  const at::TensorOptions kind = at::TensorOptions().device(device);
  scale_ = at::full({1}, options_.init_scale, kind.dtype(at::kFloat));
  growth_tracker_ = at::zeros({1}, kind.dtype(at::kInt));
  found_inf_ = at::zeros({}, kind.dtype(at::kFloat));
}

at::Tensor GradScaler::scale(const at::Tensor& loss) const { return loss * scale_.squeeze(0); }

void GradScaler::unscale(const Optimizer& optimizer) {
  const at::NoGradGuard no_grad;
  found_inf_.zero_();
  const at::Tensor inverse = scale_.to(at::kDouble).reciprocal_().to(at::kFloat);
  std::vector<at::Tensor> others;  // gradients whose dtype differs from that of the first one
  gradients_.clear();
  for (const auto& group : optimizer.param_groups())
    for (const at::Tensor& parameter : group.params()) {
      const at::Tensor& gradient = parameter.grad();
      if (!gradient.defined()) continue;
      if (gradient.scalar_type() == at::kHalf)
        throw ConfigError(
            "precision: amp_fp16 requires float32 parameters, but one is float16; keep the model in float32, ",
            "autocast converts it where needed");
      at::Tensor values = gradient.is_sparse() ? gradient._values() : gradient;
      const bool fits = gradients_.empty() || values.scalar_type() == gradients_.front().scalar_type();
      (fits ? gradients_ : others).push_back(std::move(values));
    }
  if (!gradients_.empty()) at::_amp_foreach_non_finite_check_and_unscale_(gradients_, found_inf_, inverse);
  for (at::Tensor& gradient : others) at::_amp_foreach_non_finite_check_and_unscale_(gradient, found_inf_, inverse);
  gradients_.clear();
}

void GradScaler::step(Optimizer& optimizer) const {
  require_skippable(optimizer, "grad_scaler");
  dynamic_cast<SkippableStep&>(optimizer).step_unless(found_inf_);
}

void GradScaler::update() {
  at::_amp_update_scale_(scale_, growth_tracker_, found_inf_, options_.growth_factor, options_.backoff_factor,
                         options_.growth_interval);
}

void GradScaler::load(const at::Tensor& scale_factor, const at::Tensor& growth_tracker) {
  if (scale_factor.numel() != 1 || growth_tracker.numel() != 1)
    throw DataError("grad_scaler: scale_factor and growth_tracker must have one element each, got shapes ",
                    scale_factor.sizes(), " and ", growth_tracker.sizes());
  scale_.copy_(scale_factor.reshape({1}));
  growth_tracker_.copy_(growth_tracker.reshape({1}));
}

}  // namespace composer::optim
