#include "composer/optim/adam.h"

#include <utility>

#include "composer/optim/adam_update.h"

namespace composer::optim {

using detail::as;

namespace {

const std::vector<const char*> kKeys = {"step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"};

template <class O>
std::vector<Option<O>> adam_options() {
  return detail::with_groups(option("lr", &O::lr).at_least(0).finite(), option("beta1", &O::beta1).from_0_below_1(),
                             option("beta2", &O::beta2).from_0_below_1(), option("eps", &O::eps).at_least(0).finite(),
                             option("weight_decay", &O::weight_decay).at_least(0).finite(),
                             option("amsgrad", &O::amsgrad));
}

}  // namespace

void AdamOptimizer::prepare(const at::Tensor& parameter, ParameterState& state, const Options& options) const {
  detail::prepare_adam(parameter, state, hyper(options).amsgrad);
}
bool AdamOptimizer::elementwise(const Options&) const { return true; }
void AdamOptimizer::describe(detail::Slice& slice, ParameterState& state, const Options& options) {
  detail::describe_adam(slice, state, hyper(options), corrections_);
}
bool AdamOptimizer::obeys_found_inf(const detail::Batch& batch, const Options& options) const {
  return detail::is_fused_adam(batch, hyper(options));
}
void AdamOptimizer::update(detail::Batch& batch, const Options& options) { detail::update_adam(batch, hyper(options)); }

Adam::Adam(const NamedParameters& parameters, const AdamOptions& options)
    : AdamOptimizer("adam", kKeys, detail::build_groups("adam", parameters, options, adam_options<AdamOptions>),
                    options.step_in_backward) {}
detail::AdamHyper Adam::hyper(const Options& options) const {
  const AdamOptions& o = as<AdamOptions>(options).values;
  return {o.lr, o.beta1, o.beta2, o.eps, o.weight_decay, 0, o.amsgrad};
}

AdamW::AdamW(const NamedParameters& parameters, const AdamWOptions& options)
    : AdamOptimizer("adamw", kKeys, detail::build_groups("adamw", parameters, options, adam_options<AdamWOptions>),
                    options.step_in_backward) {}
detail::AdamHyper AdamW::hyper(const Options& options) const {
  const AdamWOptions& o = as<AdamWOptions>(options).values;
  return {o.lr, o.beta1, o.beta2, o.eps, 0, o.lr * o.weight_decay, o.amsgrad};
}

DecoupledAdamW::DecoupledAdamW(const NamedParameters& parameters, const DecoupledAdamWOptions& options)
    : AdamOptimizer("decoupled_adamw", kKeys,
                    detail::build_groups("decoupled_adamw", parameters, options, adam_options<DecoupledAdamWOptions>),
                    options.step_in_backward) {
  detail::warn_of_decay("decoupled_adamw", options.weight_decay);
}
detail::AdamHyper DecoupledAdamW::hyper(const Options& options) const {
  const auto& group = as<DecoupledAdamWOptions>(options);
  const DecoupledAdamWOptions& o = group.values;
  const double share = detail::share_of_initial_lr(group);
  return {o.lr, o.beta1, o.beta2, o.eps, 0, share * o.weight_decay, o.amsgrad};
}

AnyOptimizer adam(AdamOptions options) {
  return detail::make_later<Adam>("adam", std::move(options), adam_options<AdamOptions>);
}
AnyOptimizer adamw(AdamWOptions options) {
  return detail::make_later<AdamW>("adamw", std::move(options), adam_options<AdamWOptions>);
}
AnyOptimizer decoupled_adamw(DecoupledAdamWOptions options) {
  return detail::make_later<DecoupledAdamW>("decoupled_adamw", std::move(options), adam_options<DecoupledAdamWOptions>);
}

}  // namespace composer::optim
