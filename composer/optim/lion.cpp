#include "composer/optim/lion.h"

#include <ATen/ATen.h>

#include "composer/optim/groups.h"
#include "composer/optim/kernels.h"

namespace composer::optim {
namespace {

void check(const std::string& who, const LionOptions& options) {
  detail::check_lr(who, options.lr);
  detail::check_betas(who, options.beta1, options.beta2);
  detail::check_not_negative(who, "weight_decay", options.weight_decay);
}

}  // namespace

std::vector<OptionField> fields_of(LionOptions& options) {
  return {{"lr", &options.lr},
          {"beta1", &options.beta1},
          {"beta2", &options.beta2},
          {"weight_decay", &options.weight_decay}};
}

Lion::Lion(const NamedParameters& parameters, const LionOptions& options)
    : NamedOptimizer("lion", {"exp_avg"}, detail::build_groups("lion", parameters, options, check),
                     options.step_in_backward) {}

void Lion::prepare(const at::Tensor& parameter, ParameterState& state, const Options&) const {
  state.tensors[0] = at::zeros_like(parameter);
}

bool Lion::describe(detail::Slice& slice, ParameterState& state, const Options& options) {
  const LionOptions& given = detail::as<LionOptions>(options).values;
  slice.update = detail::LionUpdate{
      .l2 = 0, .keep = 1 - given.lr * given.weight_decay, .beta1 = given.beta1, .beta2 = given.beta2, .lr = given.lr};
  slice.a = detail::memory(state.tensors[0]);
  return true;
}

void Lion::update(at::Tensor& parameter, const at::Tensor& gradient, ParameterState& state, const Options& options) {
  const LionOptions& given = detail::as<LionOptions>(options).values;
  at::Tensor& mean = state.tensors[0];
  const at::Tensor change = mean.mul(given.beta1).add_(gradient, 1 - given.beta1).sign_();
  parameter.mul_(1 - given.lr * given.weight_decay).add_(change, -given.lr);
  mean.mul_(given.beta2).add_(gradient, 1 - given.beta2);
}

AnyOptimizer lion(LionOptions options) {
  check("lion", options);
  return AnyOptimizer::Factory(
      [options](const NamedParameters& parameters) { return std::make_shared<Lion>(parameters, options); });
}

}  // namespace composer::optim
