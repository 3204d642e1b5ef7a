#include "composer/optim/adafactor.h"

#include <cmath>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/zeros.h>

#include "composer/optim/batch.h"
#include "composer/optim/groups.h"

namespace composer::optim {

using detail::as;

namespace {

struct AdafactorState {
  enum Index : std::size_t { STEP, ROW_VAR, COL_VAR, VARIANCE };
};

std::vector<Option<AdafactorOptions>> adafactor_options() {
  using O = AdafactorOptions;
  return detail::with_groups(option("lr", &O::lr).at_least(0).finite(), option("scale_parameter", &O::scale_parameter),
                             option("relative_step", &O::relative_step), option("eps1", &O::eps1).above(0),
                             option("eps2", &O::eps2).at_least(0).finite(),
                             option("clip_threshold", &O::clip_threshold).above(0), option("decay", &O::decay).above(0),
                             option("weight_decay", &O::weight_decay).at_least(0).finite());
}

// Computes b * old + (1 - b) * now with b = 1 - share.
void average(at::Tensor& old, const at::Tensor& now, const at::Tensor& share) { old.add_((now - old).mul_(share)); }

// The mean of x^2 + `more` along one dimension, without an intermediate tensor of the size of x.
at::Tensor mean_square(const at::Tensor& x, std::int64_t dim, double more) {
  return at::linalg_vector_norm(x, 2, dim, /*keepdim=*/true).square_().div_(x.size(dim)).add_(more);
}

at::Tensor root_mean_square(const at::Tensor& x) {
  return at::linalg_vector_norm(x).div_(std::sqrt(static_cast<double>(x.numel())));
}

// The smallest positive number of the dtype that is not flushed to zero.
double least(at::ScalarType type) {
  constexpr double kLeastFloat = 0x1p-126, kLeastDouble = 0x1p-1022;
  return type == at::kDouble ? kLeastDouble : kLeastFloat;
}

// Squares in float16 overflow for numbers above 256, and eps1 is 0 in float16, so float16 parameters are updated in
// float. The state of matrices is kept in float; NamedOptimizer keeps the state of vectors, which has the parameter's
// shape, in the parameter's dtype.
at::ScalarType state_type(const at::Tensor& parameter) {
  return parameter.scalar_type() == at::kHalf ? at::kFloat : parameter.scalar_type();
}

// g / sqrt(v). For a matrix, it is computed from the row and column means of v.
at::Tensor scaled_gradient(const at::Tensor& g, ParameterState& state, const at::Tensor& share, double eps1) {
  auto& [count, row, column, variance] = state.tensors;
  if (g.dim() < 2) {
    variance = variance.to(g.scalar_type());
    average(variance, g.square().add_(eps1), share);
    return g.div(variance.sqrt());
  }
  average(row, mean_square(g, -1, eps1), share);
  average(column, mean_square(g, -2, eps1), share);
  // A row without gradients is tiny relative to the others. It must not become 0 in the quotient, because that would
  // give 0 / 0.
  const at::Tensor share_of_row = row.div(row.mean(-2, /*keepdim=*/true)).clamp_min_(least(row.scalar_type()));
  return g.mul(share_of_row.rsqrt()).mul_(column.rsqrt());
}

void update_tensor(at::Tensor& p, const at::Tensor& g, ParameterState& state, const AdafactorOptions& o) {
  const at::Tensor step = state.tensors[AdafactorState::STEP].to(at::kDouble);
  const at::Tensor u = scaled_gradient(g.to(state_type(p)), state, step.pow(-o.decay), o.eps1);
  at::Tensor rate = o.relative_step ? step.rsqrt().clamp_max_(o.lr) : step.mul(0).add_(o.lr);
  if (o.scale_parameter) rate = rate * root_mean_square(p).clamp_min_(o.eps2);
  rate = rate / root_mean_square(u).div_(o.clip_threshold).clamp_min_(1);
  if (o.weight_decay != 0) p.mul_(1 - o.lr * o.weight_decay);
  p.sub_(u.mul_(rate));
}

}  // namespace

Adafactor::Adafactor(const NamedParameters& parameters, const AdafactorOptions& options)
    : NamedOptimizer("adafactor", {"step", "row_var", "col_var", "variance"},
                     detail::build_groups("adafactor", parameters, options, adafactor_options),
                     options.step_in_backward) {}

void Adafactor::prepare(const at::Tensor& parameter, ParameterState& state, const Options&) const {
  if (state.tensors[AdafactorState::STEP].defined()) return;
  state.tensors[AdafactorState::STEP] = detail::step_count(parameter);
  const at::TensorOptions kind = parameter.options().requires_grad(false).dtype(state_type(parameter));
  if (parameter.dim() < 2) {
    state.tensors[AdafactorState::VARIANCE] = at::zeros(parameter.sizes(), kind);
    return;
  }
  std::vector<std::int64_t> row = parameter.sizes().vec(), column = row;
  row.back() = 1;
  column[column.size() - 2] = 1;
  state.tensors[AdafactorState::ROW_VAR] = at::zeros(row, kind);
  state.tensors[AdafactorState::COL_VAR] = at::zeros(column, kind);
}

void Adafactor::update(detail::Batch& batch, const Options& options) {
  const AdafactorOptions& o = as<AdafactorOptions>(options).values;
  batch.count_step();
  for (std::size_t i = 0; i < batch.p.size(); ++i) update_tensor(batch.p[i], batch.g[i], *batch.states[i], o);
}

AnyOptimizer adafactor(AdafactorOptions options) {
  return detail::make_later<Adafactor>("adafactor", std::move(options), adafactor_options);
}

}  // namespace composer::optim
