#include "composer/optim/adagrad.h"

#include <cmath>

#include <ATen/ATen.h>

#include "composer/optim/groups.h"
#include "composer/optim/kernels.h"

namespace composer::optim {
namespace {

enum Key : std::uint8_t { STEP, SUM };

void check(const std::string& who, const AdagradOptions& options) {
  detail::check_lr(who, options.lr);
  detail::check_not_negative(who, "lr_decay", options.lr_decay);
  detail::check_not_negative(who, "eps", options.eps);
  detail::check_not_negative(who, "weight_decay", options.weight_decay);
  detail::check_not_negative(who, "initial_accumulator_value", options.initial_accumulator_value);
}

}  // namespace

std::vector<OptionField> fields_of(AdagradOptions& options) {
  return {{"lr", &options.lr},
          {"lr_decay", &options.lr_decay},
          {"eps", &options.eps},
          {"weight_decay", &options.weight_decay},
          {"initial_accumulator_value", &options.initial_accumulator_value}};
}

Adagrad::Adagrad(const NamedParameters& parameters, const AdagradOptions& options)
    : NamedOptimizer("adagrad", {"step", "sum"}, detail::build_groups("adagrad", parameters, options, check),
                     options.step_in_backward) {}

void Adagrad::prepare(const at::Tensor& parameter, ParameterState& state, const Options& options) const {
  state.tensors[STEP] = at::zeros({}, parameter.options().dtype(at::kFloat));
  state.tensors[SUM] = at::full_like(parameter, detail::as<AdagradOptions>(options).values.initial_accumulator_value);
}

bool Adagrad::describe(detail::Slice& slice, ParameterState& state, const Options& options) {
  const AdagradOptions& given = detail::as<AdagradOptions>(options).values;
  const double step = *state.tensors[STEP].mutable_data_ptr<float>() += 1;
  slice.update = detail::AdagradUpdate{
      .l2 = given.weight_decay, .eps = given.eps, .lr = given.lr / (1 + (step - 1) * given.lr_decay)};
  slice.a = detail::memory(state.tensors[SUM]);
  return true;
}

void Adagrad::update(at::Tensor& parameter, const at::Tensor& gradient, ParameterState& state, const Options& options) {
  const AdagradOptions& given = detail::as<AdagradOptions>(options).values;
  at::Tensor &count = state.tensors[STEP], &sum = state.tensors[SUM];
  const at::Tensor slope = given.weight_decay == 0 ? gradient : gradient.add(parameter, given.weight_decay);
  const at::Tensor rate = given.lr / (1 + count.to(at::kDouble) * given.lr_decay);
  count.add_(1);
  sum.addcmul_(slope, slope);
  parameter.sub_(slope.div(sum.sqrt().add_(given.eps)).mul_(rate));
}

AnyOptimizer adagrad(AdagradOptions options) {
  check("adagrad", options);
  return AnyOptimizer::Factory(
      [options](const NamedParameters& parameters) { return std::make_shared<Adagrad>(parameters, options); });
}

}  // namespace composer::optim
