#include "composer/optim/rmsprop.h"

#include <cmath>

#include <ATen/ATen.h>

#include "composer/optim/groups.h"
#include "composer/optim/kernels.h"

namespace composer::optim {
namespace {

enum Key : std::uint8_t { STEP, SQUARE_AVG, MOMENTUM_BUFFER, GRAD_AVG };

void check(const std::string& who, const RmspropOptions& options) {
  detail::check_lr(who, options.lr);
  detail::require(options.alpha >= 0 && options.alpha < 1, who, "alpha must be in [0, 1)", options.alpha);
  detail::check_not_negative(who, "eps", options.eps);
  detail::check_not_negative(who, "weight_decay", options.weight_decay);
  detail::check_not_negative(who, "momentum", options.momentum);
}

}  // namespace

std::vector<OptionField> fields_of(RmspropOptions& options) {
  return {{"lr", &options.lr},
          {"alpha", &options.alpha},
          {"eps", &options.eps},
          {"weight_decay", &options.weight_decay},
          {"momentum", &options.momentum},
          {"centered", &options.centered}};
}

RMSprop::RMSprop(const NamedParameters& parameters, const RmspropOptions& options)
    : NamedOptimizer("rmsprop", {"step", "square_avg", "momentum_buffer", "grad_avg"},
                     detail::build_groups("rmsprop", parameters, options, check), options.step_in_backward) {}

void RMSprop::prepare(const at::Tensor& parameter, ParameterState& state, const Options& options) const {
  const RmspropOptions& given = detail::as<RmspropOptions>(options).values;
  state.tensors[STEP] = at::zeros({}, parameter.options().dtype(at::kFloat));
  state.tensors[SQUARE_AVG] = at::zeros_like(parameter);
  if (given.momentum > 0) state.tensors[MOMENTUM_BUFFER] = at::zeros_like(parameter);
  if (given.centered) state.tensors[GRAD_AVG] = at::zeros_like(parameter);
}

bool RMSprop::describe(detail::Slice& slice, ParameterState& state, const Options& options) {
  const RmspropOptions& given = detail::as<RmspropOptions>(options).values;
  *state.tensors[STEP].mutable_data_ptr<float>() += 1;
  slice.update = detail::RmspropUpdate{
      .l2 = given.weight_decay, .alpha = given.alpha, .eps = given.eps, .momentum = given.momentum, .lr = given.lr};
  slice.a = detail::memory(state.tensors[SQUARE_AVG]);
  slice.b = detail::memory(state.tensors[MOMENTUM_BUFFER]);
  slice.c = detail::memory(state.tensors[GRAD_AVG]);
  return true;
}

void RMSprop::update(at::Tensor& parameter, const at::Tensor& gradient, ParameterState& state, const Options& options) {
  const RmspropOptions& given = detail::as<RmspropOptions>(options).values;
  auto& [count, square, buffer, mean] = state.tensors;
  count.add_(1);
  const at::Tensor slope = given.weight_decay == 0 ? gradient : gradient.add(parameter, given.weight_decay);
  square.mul_(given.alpha).addcmul_(slope, slope, 1 - given.alpha);
  at::Tensor variance = square;
  if (mean.defined()) {
    mean.mul_(given.alpha).add_(slope, 1 - given.alpha);
    variance = square.addcmul(mean, mean, -1);
  }
  at::Tensor change = slope.div(variance.sqrt().add_(given.eps));
  if (buffer.defined()) change = buffer.mul_(given.momentum).add_(change);
  parameter.add_(change, -given.lr);
}

AnyOptimizer rmsprop(RmspropOptions options) {
  check("rmsprop", options);
  return AnyOptimizer::Factory(
      [options](const NamedParameters& parameters) { return std::make_shared<RMSprop>(parameters, options); });
}

}  // namespace composer::optim
