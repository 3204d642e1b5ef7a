#include "composer/optim/adagrad.h"

#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_sqrt.h>
#include <ATen/ops/_fused_adagrad.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/sparse_coo_tensor.h>

#include "composer/optim/batch.h"
#include "composer/optim/groups.h"

namespace composer::optim {

using detail::as;

namespace {

struct AdagradState {
  enum Index : std::size_t { STEP, SUM };
};

std::vector<Option<AdagradOptions>> adagrad_options() {
  using O = AdagradOptions;
  return detail::with_groups(option("lr", &O::lr).at_least(0).finite(),
                             option("lr_decay", &O::lr_decay).at_least(0).finite(),
                             option("weight_decay", &O::weight_decay).at_least(0).finite(),
                             option("initial_accumulator_value", &O::initial_accumulator_value).at_least(0).finite(),
                             option("eps", &O::eps).at_least(0).finite());
}

double rate(const AdagradOptions& o, double step) { return o.lr / (1 + (step - 1) * o.lr_decay); }

}  // namespace

Adagrad::Adagrad(const NamedParameters& parameters, const AdagradOptions& options)
    : NamedOptimizer("adagrad", {"step", "sum"}, detail::build_groups("adagrad", parameters, options, adagrad_options),
                     options.step_in_backward) {}

void Adagrad::prepare(const at::Tensor& parameter, ParameterState& state, const Options& options) const {
  if (state.tensors[AdagradState::STEP].defined()) return;
  state.tensors[AdagradState::STEP] = detail::step_count(parameter);
  state.tensors[AdagradState::SUM] =
      at::full_like(parameter, as<AdagradOptions>(options).values.initial_accumulator_value);
}

bool Adagrad::elementwise(const Options&) const { return true; }

void Adagrad::describe(detail::Slice& slice, ParameterState& state, const Options& options) {
  const AdagradOptions& o = as<AdagradOptions>(options).values;
  slice.update = detail::AdagradUpdate{.l2 = o.weight_decay,
                                       .eps = o.eps,
                                       .lr = rate(o, detail::count(state.tensors[AdagradState::STEP])),
                                       .s = detail::memory(state.tensors[AdagradState::SUM])};
}

bool Adagrad::obeys_found_inf(const detail::Batch& batch, const Options&) const { return batch.dense; }

void Adagrad::update(detail::Batch& batch, const Options& options) {
  const AdagradOptions& o = as<AdagradOptions>(options).values;
  const std::vector<at::Tensor> steps = batch.count_step(), sums = batch.column(AdagradState::SUM);
  if (batch.dense) {
    const auto found = batch.found_inf.defined() ? std::optional(batch.found_inf) : std::nullopt;
    return at::_fused_adagrad_(batch.p, batch.g, sums, steps, o.lr, o.lr_decay, o.weight_decay, o.eps,
                               /*maximize=*/false, /*grad_scale=*/{}, found);
  }
  const std::vector<at::Tensor> g = o.weight_decay != 0 ? at::_foreach_add(batch.g, batch.p, o.weight_decay) : batch.g;
  at::_foreach_addcmul_(sums, g, g);
  std::vector<at::Tensor> root = at::_foreach_sqrt(sums);
  at::_foreach_add_(root, o.eps);
  for (std::size_t i = 0; i < g.size(); ++i)
    batch.p[i].addcdiv_(g[i], root[i].mul_(steps[i].to(at::kDouble).sub_(1).mul_(o.lr_decay).add_(1)), -o.lr);
}

bool Adagrad::takes_sparse(const Options& options) const {
  return as<AdagradOptions>(options).values.weight_decay == 0;
}

// Updates only the rows that the gradient has.
void Adagrad::update_sparse(at::Tensor& parameter, const at::Tensor& gradient, ParameterState& state,
                            const Options& options) {
  const AdagradOptions& o = as<AdagradOptions>(options).values;
  state.tensors[AdagradState::STEP].add_(1);
  const at::Tensor g = gradient.coalesce();  // adds the values of rows that occur several times
  const auto like_g = [&](const at::Tensor& values) { return at::sparse_coo_tensor(g.indices(), values, g.sizes()); };
  state.tensors[AdagradState::SUM].add_(like_g(g.values().square()));
  const at::Tensor root = state.tensors[AdagradState::SUM].sparse_mask(g).values().sqrt().add_(o.eps);
  const at::Tensor decay = state.tensors[AdagradState::STEP].to(at::kDouble).sub_(1).mul_(o.lr_decay).add_(1);
  parameter.add_(like_g(g.values() / (root * decay)), -o.lr);
}

AnyOptimizer adagrad(AdagradOptions options) {
  return detail::make_later<Adagrad>("adagrad", std::move(options), adagrad_options);
}

}  // namespace composer::optim
