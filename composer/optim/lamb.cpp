#include "composer/optim/lamb.h"

#include <utility>

#include <ATen/ATen.h>

#include "composer/optim/adam_update.h"

namespace composer::optim {

using detail::as;

std::vector<OptionField> fields_of(LambOptions& o) {
  return {{"lr", &o.lr}, {"beta1", &o.beta1}, {"beta2", &o.beta2}, {"eps", &o.eps}, {"weight_decay", &o.weight_decay}};
}

Lamb::Lamb(const NamedParameters& parameters, const LambOptions& options)
    : NamedOptimizer("lamb", {"step", "exp_avg", "exp_avg_sq"},
                     detail::build_groups("lamb", parameters, options, detail::check_adam), options.step_in_backward) {}

void Lamb::prepare(const at::Tensor& parameter, ParameterState& state, const Options&) const {
  detail::prepare_adam(parameter, state, /*amsgrad=*/false);
}

void Lamb::update(detail::Batch& batch, const Options& options) {
  const LambOptions& o = as<LambOptions>(options).values;
  const std::vector<at::Tensor> steps = batch.count_step(), m = batch.column(detail::EXP_AVG),
                                v = batch.column(detail::EXP_AVG_SQ);
  at::_foreach_lerp_(m, batch.g, 1 - o.beta1);
  at::_foreach_mul_(v, o.beta2);
  at::_foreach_addcmul_(v, batch.g, batch.g, 1 - o.beta2);

  std::vector<at::Tensor> root = at::_foreach_div(v, detail::corrections(steps, o.beta2));
  at::_foreach_sqrt_(root);
  at::_foreach_add_(root, o.eps);
  std::vector<at::Tensor> r = at::_foreach_div(m, detail::corrections(steps, o.beta1));
  at::_foreach_div_(r, root);
  if (o.weight_decay != 0) at::_foreach_add_(r, batch.p, o.weight_decay);

  const std::vector<at::Tensor> p_norms = at::_foreach_norm(batch.p), r_norms = at::_foreach_norm(r);
  std::vector<at::Tensor> rates = at::_foreach_div(p_norms, r_norms);
  for (std::size_t i = 0; i < rates.size(); ++i)
    rates[i] = at::where((p_norms[i] > 0).logical_and(r_norms[i] > 0), rates[i], 1.0).mul_(o.lr);
  at::_foreach_mul_(r, rates);
  at::_foreach_sub_(batch.p, r);
}

AnyOptimizer lamb(LambOptions options) {
  return detail::make_later<Lamb>("lamb", std::move(options), detail::check_adam);
}

}  // namespace composer::optim
