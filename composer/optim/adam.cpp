#include "composer/optim/adam.h"

#include <cmath>

#include <ATen/ATen.h>

#include "composer/optim/groups.h"
#include "composer/optim/kernels.h"

namespace composer::optim {
namespace {

enum Key : std::uint8_t { STEP, EXP_AVG, EXP_AVG_SQ, MAX_EXP_AVG_SQ };

template <class Options>
void check(const std::string& who, const Options& options) {
  detail::check_lr(who, options.lr);
  detail::check_betas(who, options.beta1, options.beta2);
  detail::check_not_negative(who, "eps", options.eps);
  detail::check_not_negative(who, "weight_decay", options.weight_decay);
}

// They differ in their defaults only.
template <class Options>
AdamOptions as_adam(const Options& options) {
  return {.lr = options.lr,
          .beta1 = options.beta1,
          .beta2 = options.beta2,
          .eps = options.eps,
          .weight_decay = options.weight_decay,
          .amsgrad = options.amsgrad,
          .decay_matrices_only = options.decay_matrices_only,
          .groups = options.groups,
          .step_in_backward = options.step_in_backward};
}

template <class Optimizer, class Options>
AnyOptimizer factory(const char* who, const Options& options) {
  check(who, options);
  return AnyOptimizer::Factory(
      [options](const NamedParameters& parameters) { return std::make_shared<Optimizer>(parameters, options); });
}

}  // namespace

std::vector<OptionField> fields_of(AdamOptions& options) {
  return {{"lr", &options.lr},
          {"beta1", &options.beta1},
          {"beta2", &options.beta2},
          {"eps", &options.eps},
          {"weight_decay", &options.weight_decay},
          {"amsgrad", &options.amsgrad}};
}

Adam::Adam(const NamedParameters& parameters, const AdamOptions& options)
    : Adam("adam", parameters, options, Decay::L2) {}

Adam::Adam(const char* who, const NamedParameters& parameters, const AdamOptions& options, Decay decay)
    : NamedOptimizer(who, {"step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"},
                     detail::build_groups(who, parameters, options, check<AdamOptions>), options.step_in_backward),
      decay_(decay) {
  if (decay == Decay::BY_SCHEDULE) detail::warn_of_decay(who, options.weight_decay);
}

AdamW::AdamW(const NamedParameters& parameters, const AdamWOptions& options)
    : Adam("adamw", parameters, as_adam(options), Decay::BY_LR) {}

DecoupledAdamW::DecoupledAdamW(const NamedParameters& parameters, const DecoupledAdamWOptions& options)
    : Adam("decoupled_adamw", parameters, as_adam(options), Decay::BY_SCHEDULE) {}

void Adam::prepare(const at::Tensor& parameter, ParameterState& state, const Options& options) const {
  state.tensors[STEP] = at::zeros({}, parameter.options().dtype(at::kFloat));
  state.tensors[EXP_AVG] = at::zeros_like(parameter);
  state.tensors[EXP_AVG_SQ] = at::zeros_like(parameter);
  if (detail::as<AdamOptions>(options).values.amsgrad) state.tensors[MAX_EXP_AVG_SQ] = at::zeros_like(parameter);
}

double Adam::keep(const Options& options) const {
  const auto& group = detail::as<AdamOptions>(options);
  switch (decay_) {
    case Decay::L2:
      return 1;
    case Decay::BY_LR:
      return 1 - group.values.lr * group.values.weight_decay;
    case Decay::BY_SCHEDULE:
      return 1 - detail::scheduled(group.values.weight_decay, group);
  }
  return 1;
}

bool Adam::describe(detail::Slice& slice, ParameterState& state, const Options& options) {
  const AdamOptions& given = detail::as<AdamOptions>(options).values;
  const double step = *state.tensors[STEP].mutable_data_ptr<float>() += 1;
  slice.update = detail::AdamUpdate{.l2 = decay_ == Decay::L2 ? given.weight_decay : 0,
                                    .keep = keep(options),
                                    .beta1 = given.beta1,
                                    .beta2 = given.beta2,
                                    .eps = given.eps,
                                    .rate = given.lr / (1 - std::pow(given.beta1, step)),
                                    .scale = 1 / std::sqrt(1 - std::pow(given.beta2, step))};
  slice.a = detail::memory(state.tensors[EXP_AVG]);
  slice.b = detail::memory(state.tensors[EXP_AVG_SQ]);
  slice.c = detail::memory(state.tensors[MAX_EXP_AVG_SQ]);
  return true;
}

void Adam::update(at::Tensor& parameter, const at::Tensor& gradient, ParameterState& state, const Options& options) {
  const AdamOptions& given = detail::as<AdamOptions>(options).values;
  auto& [count, mean, square, top] = state.tensors;
  const bool l2 = decay_ == Decay::L2 && given.weight_decay != 0;
  const at::Tensor slope = l2 ? gradient.add(parameter, given.weight_decay) : gradient;
  const at::Tensor step = count.add_(1).to(at::kDouble);
  mean.mul_(given.beta1).add_(slope, 1 - given.beta1);
  square.mul_(given.beta2).addcmul_(slope, slope, 1 - given.beta2);
  if (top.defined()) top.copy_(at::maximum(top, square));
  const at::Tensor correction1 = 1 - at::pow(given.beta1, step), correction2 = 1 - at::pow(given.beta2, step);
  const at::Tensor root = (top.defined() ? top : square).sqrt().div_(correction2.sqrt()).add_(given.eps);
  if (const double factor = keep(options); factor != 1) parameter.mul_(factor);
  parameter.sub_(mean.div(root).mul_(given.lr / correction1));
}

AnyOptimizer adam(AdamOptions options) { return factory<Adam>("adam", options); }
AnyOptimizer adamw(AdamWOptions options) { return factory<AdamW>("adamw", options); }
AnyOptimizer decoupled_adamw(DecoupledAdamWOptions options) {
  return factory<DecoupledAdamW>("decoupled_adamw", options);
}

}  // namespace composer::optim
