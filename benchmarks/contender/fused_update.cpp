#include "benchmarks/contender/fused_update.h"

#include <utility>

#include <ATen/ATen.h>

namespace composer::bench {

FusedUpdate::FusedUpdate(Update rule, std::vector<at::Tensor> parameters, double sgd_lr)
    : rule_(rule), sgd_lr_(sgd_lr), parameters_(std::move(parameters)) {
  for (const at::Tensor& parameter : parameters_) {
    first_.push_back(at::zeros_like(parameter));
    if (rule_ == Update::SGD) continue;
    second_.push_back(at::zeros_like(parameter));
    steps_.push_back(at::zeros({}, parameter.options().dtype(at::kFloat)));
  }
  gradients_.reserve(parameters_.size());
}

void FusedUpdate::step() {
  if (parameters_.empty()) return;
  const at::NoGradGuard no_grad;
  gradients_.clear();
  for (const at::Tensor& parameter : parameters_) gradients_.push_back(parameter.grad());
  if (rule_ == Update::ADAMW) {
    if (steps_.front().is_cpu())
      for (const at::Tensor& step : steps_) *step.mutable_data_ptr<float>() += 1;
    else
      at::_foreach_add_(steps_, 1);
    at::_fused_adamw_(parameters_, gradients_, first_, second_, {}, steps_, kAdamLr, 0.9, 0.999, kAdamDecay, 1e-8,
                      /*amsgrad=*/false, /*maximize=*/false);
  } else {
    at::_fused_sgd_(parameters_, gradients_, first_, kSgdDecay, kSgdMomentum, sgd_lr_, /*dampening=*/0,
                    /*nesterov=*/false, /*maximize=*/false, /*is_first_step=*/is_first_step_);
    is_first_step_ = false;
  }
  for (at::Tensor& parameter : parameters_) parameter.mutable_grad().reset();
}

}  // namespace composer::bench
