#include "composer/optim/adafactor.h"

#include <utility>

#include <ATen/ATen.h>

#include "composer/optim/batch.h"
#include "composer/optim/groups.h"

namespace composer::optim {

using detail::as;

namespace {

enum State : std::size_t { STEP, ROW_VAR, COL_VAR, VARIANCE };

void check(const std::string& who, const AdafactorOptions& o) {
  detail::check_lr(who, o.lr);
  detail::require(o.eps1 > 0, who, "eps1 must be > 0", o.eps1);
  detail::check_not_negative(who, "eps2", o.eps2);
  detail::require(o.clip_threshold > 0, who, "clip_threshold must be > 0", o.clip_threshold);
  detail::require(o.decay > 0, who, "decay must be > 0", o.decay);
  detail::check_not_negative(who, "weight_decay", o.weight_decay);
}

at::Tensor root_mean_square(const at::Tensor& x) { return x.square().mean().sqrt_(); }

// b * old + (1 - b) * now, of b = 1 - share
void average(at::Tensor& old, const at::Tensor& now, const at::Tensor& share) { old.add_((now - old).mul_(share)); }

void update_tensor(at::Tensor& p, const at::Tensor& g, ParameterState& state, const AdafactorOptions& o) {
  auto& [count, row, column, variance] = state.tensors;
  const at::Tensor step = count.to(at::kDouble);
  const at::Tensor share = step.pow(-o.decay), square = g.square().add_(o.eps1);
  at::Tensor v;
  if (p.dim() >= 2) {
    average(row, square.mean(-1, /*keepdim=*/true), share);
    average(column, square.mean(-2, /*keepdim=*/true), share);
    v = row.div(row.mean(-2, /*keepdim=*/true)).mul(column);
  } else {
    average(variance, square, share);
    v = variance;
  }
  const at::Tensor u = g.div(v.sqrt());
  u.div_(root_mean_square(u).div_(o.clip_threshold).clamp_min_(1));
  at::Tensor rate = o.relative_step ? step.rsqrt().clamp_max_(o.lr) : step.mul(0).add_(o.lr);
  if (o.weight_decay != 0) p.sub_(p.mul(rate).mul_(o.weight_decay));
  if (o.scale_parameter) rate = rate * root_mean_square(p).clamp_min_(o.eps2);
  p.sub_(u.mul_(rate));
}

}  // namespace

std::vector<OptionField> fields_of(AdafactorOptions& o) {
  return {{"lr", &o.lr},
          {"scale_parameter", &o.scale_parameter},
          {"relative_step", &o.relative_step},
          {"eps1", &o.eps1},
          {"eps2", &o.eps2},
          {"clip_threshold", &o.clip_threshold},
          {"decay", &o.decay},
          {"weight_decay", &o.weight_decay}};
}

Adafactor::Adafactor(const NamedParameters& parameters, const AdafactorOptions& options)
    : NamedOptimizer("adafactor", {"step", "row_var", "col_var", "variance"},
                     detail::build_groups("adafactor", parameters, options, check), options.step_in_backward) {}

void Adafactor::prepare(const at::Tensor& parameter, ParameterState& state, const Options&) const {
  if (state.tensors[STEP].defined()) return;
  state.tensors[STEP] = detail::step_count(parameter);
  if (parameter.dim() < 2) {
    state.tensors[VARIANCE] = at::zeros_like(parameter);
    return;
  }
  std::vector<std::int64_t> row = parameter.sizes().vec(), column = row;
  row.back() = 1;
  column[column.size() - 2] = 1;
  const at::TensorOptions kind = parameter.options().requires_grad(false);
  state.tensors[ROW_VAR] = at::zeros(row, kind);
  state.tensors[COL_VAR] = at::zeros(column, kind);
}

void Adafactor::update(detail::Batch& batch, const Options& options) {
  const AdafactorOptions& o = as<AdafactorOptions>(options).values;
  batch.count_step();
  for (std::size_t i = 0; i < batch.p.size(); ++i) update_tensor(batch.p[i], batch.g[i], *batch.states[i], o);
}

AnyOptimizer adafactor(AdafactorOptions options) {
  return detail::make_later<Adafactor>("adafactor", std::move(options), check);
}

}  // namespace composer::optim
