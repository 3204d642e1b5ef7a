#include "composer/optim/sgd.h"

#include <ATen/ATen.h>

#include "composer/optim/groups.h"
#include "composer/optim/kernels.h"

namespace composer::optim {
namespace {

void check(const std::string& who, const SgdOptions& options) {
  detail::require(options.lr > 0 && std::isfinite(options.lr), who, "lr must be > 0", options.lr);
  detail::check_not_negative(who, "momentum", options.momentum);
  detail::check_not_negative(who, "dampening", options.dampening);
  detail::check_not_negative(who, "weight_decay", options.weight_decay);
  if (options.nesterov && (options.momentum == 0 || options.dampening != 0))
    throw ConfigError(who, ": nesterov needs momentum > 0 and dampening 0, got momentum ", options.momentum,
                      ", dampening ", options.dampening);
}

detail::SgdUpdate update_of(const GroupOptions<SgdOptions>& group, bool decoupled, bool fresh) {
  const SgdOptions& options = group.values;
  return {.l2 = decoupled ? 0 : options.weight_decay,
          .keep = decoupled ? 1 - detail::scheduled(options.weight_decay, group) : 1,
          .momentum = options.momentum,
          .fresh = fresh ? 1 : 1 - options.dampening,
          .lr = options.lr,
          .nesterov = options.nesterov};
}

}  // namespace

std::vector<OptionField> fields_of(SgdOptions& options) {
  return {{"lr", &options.lr},
          {"momentum", &options.momentum},
          {"dampening", &options.dampening},
          {"weight_decay", &options.weight_decay},
          {"nesterov", &options.nesterov}};
}

SGD::SGD(const NamedParameters& parameters, const SgdOptions& options) : SGD("sgd", parameters, options, false) {}

SGD::SGD(const char* who, const NamedParameters& parameters, const SgdOptions& options, bool decoupled)
    : NamedOptimizer(who, {"momentum_buffer"}, detail::build_groups(who, parameters, options, check),
                     options.step_in_backward),
      decoupled_(decoupled) {
  if (decoupled) detail::warn_of_decay(who, options.weight_decay);
}

DecoupledSGDW::DecoupledSGDW(const NamedParameters& parameters, const SgdOptions& options)
    : SGD("decoupled_sgdw", parameters, options, true) {}

void SGD::prepare(const at::Tensor& parameter, ParameterState& state, const Options& options) const {
  if (detail::as<SgdOptions>(options).values.momentum != 0) state.tensors[0] = at::zeros_like(parameter);
}

bool SGD::describe(detail::Slice& slice, ParameterState& state, const Options& options) {
  slice.update = update_of(detail::as<SgdOptions>(options), decoupled_, state.fresh);
  slice.a = detail::memory(state.tensors[0]);
  return true;
}

void SGD::update(at::Tensor& parameter, const at::Tensor& gradient, ParameterState& state, const Options& options) {
  const detail::SgdUpdate how = update_of(detail::as<SgdOptions>(options), decoupled_, state.fresh);
  at::Tensor change = how.l2 == 0 ? gradient : gradient.add(parameter, how.l2);
  if (at::Tensor& buffer = state.tensors[0]; buffer.defined()) {
    buffer.mul_(how.momentum).add_(change, how.fresh);
    change = how.nesterov ? change.add(buffer, how.momentum) : buffer;
  }
  if (how.keep != 1) parameter.mul_(how.keep);
  parameter.add_(change, -how.lr);
}

AnyOptimizer sgd(SgdOptions options) {
  check("sgd", options);
  return AnyOptimizer::Factory(
      [options](const NamedParameters& parameters) { return std::make_shared<SGD>(parameters, options); });
}

AnyOptimizer decoupled_sgdw(SgdOptions options) {
  check("decoupled_sgdw", options);
  return AnyOptimizer::Factory(
      [options](const NamedParameters& parameters) { return std::make_shared<DecoupledSGDW>(parameters, options); });
}

}  // namespace composer::optim
