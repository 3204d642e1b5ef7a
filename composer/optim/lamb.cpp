#include "composer/optim/lamb.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_foreach_sqrt.h>
#include <ATen/ops/_foreach_sub.h>
#include <ATen/ops/where.h>

#include "composer/optim/adam_update.h"
#include "composer/optim/lamb_kernel.h"
#include "composer/util/parallel.h"

namespace composer::optim {

using detail::as;

namespace {

std::vector<Option<LambOptions>> lamb_options() {
  using O = LambOptions;
  return detail::with_groups(option("lr", &O::lr).at_least(0).finite(), option("beta1", &O::beta1).from_0_below_1(),
                             option("beta2", &O::beta2).from_0_below_1(), option("eps", &O::eps).at_least(0).finite(),
                             option("weight_decay", &O::weight_decay).at_least(0).finite());
}

}  // namespace

Lamb::Lamb(const NamedParameters& parameters, const LambOptions& options)
    : NamedOptimizer("lamb", {"step", "exp_avg", "exp_avg_sq"},
                     detail::build_groups("lamb", parameters, options, lamb_options), options.step_in_backward) {}

void Lamb::prepare(const at::Tensor& parameter, ParameterState& state, const Options&) const {
  detail::prepare_adam(parameter, state, /*amsgrad=*/false);
}

namespace {

// Works in pieces of fixed length, so that sums, and therefore results, do not depend on the number of threads.
void update_on_host(at::Tensor& parameter, const at::Tensor& gradient, ParameterState& state, const LambOptions& o) {
  constexpr std::int64_t kPiece = 16384;
  const double step = detail::count(state.tensors[detail::STEP]);
  const detail::LambUpdate update{.beta1 = o.beta1,
                                  .beta2 = o.beta2,
                                  .eps = o.eps,
                                  .decay = o.weight_decay,
                                  .first = 1 - std::pow(o.beta1, step),
                                  .second = 1 - std::pow(o.beta2, step),
                                  .p = parameter.mutable_data_ptr(),
                                  .g = gradient.const_data_ptr(),
                                  .m = detail::memory(state.tensors[detail::EXP_AVG]),
                                  .v = detail::memory(state.tensors[detail::EXP_AVG_SQ]),
                                  .is_double = parameter.scalar_type() == at::kDouble};
  const std::int64_t n = parameter.numel(), pieces = (n + kPiece - 1) / kPiece;
  std::vector<detail::SquareSums> sums(static_cast<std::size_t>(pieces));
  parallel_for(0, pieces, 2, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      sums[static_cast<std::size_t>(i)] =
          detail::update_lamb_moments(update, i * kPiece, std::min(n, (i + 1) * kPiece));
  });
  detail::SquareSums all;
  for (const detail::SquareSums& piece : sums) all = {all.p + piece.p, all.r + piece.r};
  const double trust = all.p > 0 && all.r > 0 ? std::sqrt(all.p / all.r) : 1;
  parallel_for(0, pieces, 2, [&](std::int64_t begin, std::int64_t end) {
    detail::move_lamb(update, o.lr * trust, begin * kPiece, std::min(n, end * kPiece));
  });
  parameter.unsafeGetTensorImpl()->bump_version();
}

void update_by_operators(const detail::Batch& batch, const LambOptions& o) {
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

}  // namespace

void Lamb::update(detail::Batch& batch, const Options& options) {
  const LambOptions& o = as<LambOptions>(options).values;
  if (batch.p.empty()) return;
  const at::Tensor& one = batch.p.front();
  if (!batch.dense || !one.is_cpu() || (one.scalar_type() != at::kFloat && one.scalar_type() != at::kDouble))
    return update_by_operators(batch, o);
  for (std::size_t i = 0; i < batch.p.size(); ++i) update_on_host(batch.p[i], batch.g[i], *batch.states[i], o);
}

AnyOptimizer lamb(LambOptions options) { return detail::make_later<Lamb>("lamb", std::move(options), lamb_options); }

}  // namespace composer::optim
