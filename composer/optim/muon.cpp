#include "composer/optim/muon.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/zeros_like.h>

#include "composer/optim/adam_update.h"
#include "composer/optim/groups.h"
#include "composer/util/parallel.h"
#include "composer/util/wildcard.h"

namespace composer::optim {

using detail::as;
using detail::BuiltGroup;

namespace {

constexpr std::size_t kMomentumBuffer = 3;

std::vector<Option<MuonOptions>> muon_options() {
  using O = MuonOptions;
  return detail::with_groups(
      option("lr", &O::lr).at_least(0).finite(), option("momentum", &O::momentum).from_0_below_1(),
      option("nesterov", &O::nesterov),
      option("ns_steps", &O::ns_steps).from_to(1, 100).worded("be 1 to 100").unlogged("is 0 in groups of AdamW"),
      option("weight_decay", &O::weight_decay).at_least(0).finite(), option("beta1", &O::beta1).from_0_below_1(),
      option("beta2", &O::beta2).from_0_below_1(), option("eps", &O::eps).at_least(0).finite(),
      part("adamw_for", &O::adamw_for, "patterns"));
}

// Whether AdamW updates the group; split_groups() marks such groups by ns_steps = 0.
bool is_adamw(const MuonOptions& o) { return o.ns_steps == 0; }

std::vector<BuiltGroup> split_groups(const NamedParameters& parameters, const MuonOptions& options) {
  for (const std::string& pattern : options.adamw_for)
    if (std::ranges::none_of(parameters, [&](const auto& one) { return fits_wildcard(pattern, one.name); }))
      throw ConfigError("muon: adamw_for: no parameter matches ", pattern);
  const auto hidden = [&](const NamedParameter& one) {
    return one.tensor.dim() >= 2 && std::ranges::none_of(options.adamw_for, [&](const std::string& pattern) {
             return fits_wildcard(pattern, one.name);
           });
  };
  std::vector<BuiltGroup> groups;
  for (BuiltGroup& group : detail::build_groups("muon", parameters, options, muon_options)) {
    const MuonOptions& own = as<MuonOptions>(*group.options).values;
    MuonOptions adamw = own;
    adamw.ns_steps = 0;
    BuiltGroup matrices{{}, std::move(group.options)};
    BuiltGroup others{{}, std::make_unique<GroupOptions<MuonOptions>>(std::move(adamw), muon_options)};
    for (NamedParameter& one : group.parameters) (hidden(one) ? matrices : others).parameters.push_back(std::move(one));
    for (BuiltGroup* made : {&matrices, &others})
      if (!made->parameters.empty()) groups.push_back(std::move(*made));
  }
  return groups;
}

detail::AdamHyper adamw_of(const MuonOptions& o) {
  return {o.lr, o.beta1, o.beta2, o.eps, 0, o.lr * o.weight_decay, /*amsgrad=*/false};
}

// Uses bfloat16 for large matrices: five steps bring the singular values only near 1, so its 8 bits suffice (Muon's
// author also uses it), and bfloat16 units are several times faster. For small matrices the gain is negligible.
bool in_bfloat16(const at::Tensor& matrix) {
  constexpr std::int64_t kWorthIt = 128;
#if defined(__x86_64__)
  static const bool has_units = __builtin_cpu_supports("avx512bf16");
#else
  constexpr bool has_units = false;
#endif
  return has_units && matrix.is_cpu() && matrix.scalar_type() == at::kFloat &&
         std::min(matrix.size(0), matrix.size(1)) >= kWorthIt;
}

// Transposes matrices that are higher than wide, because x x^T is then the smaller of the two products.
at::Tensor orthogonalised(const at::Tensor& matrix, std::int64_t steps) {
  constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;
  const bool tall = matrix.size(0) > matrix.size(1);
  at::Tensor x = tall ? matrix.t() : matrix;
  x = x / x.norm().clamp_min(1e-7);
  if (in_bfloat16(matrix)) x = x.to(at::kBFloat16);
  for (std::int64_t i = 0; i < steps; ++i) {
    const at::Tensor product = x.mm(x.t());
    x = at::addmm(x, at::addmm(product, product, product, kB, kC), x, kA);
  }
  return tall ? x.t() : x;
}

// For small matrices, waking the threads would take longer than a product, so each thread processes whole matrices.
bool is_small(const at::Tensor& parameter) {
  constexpr std::int64_t kMultiplications = 1 << 26;
  const std::int64_t rows = std::max<std::int64_t>(parameter.size(0), 1);
  return parameter.is_cpu() && parameter.numel() * std::min(rows, parameter.numel() / rows) <= kMultiplications;
}

void orthogonalise(std::vector<at::Tensor>& matrices, std::int64_t steps) {
  const auto replace = [&](std::int64_t begin, std::int64_t end) {
    const at::NoGradGuard no_grad;
    for (std::int64_t i = begin; i < end; ++i)
      matrices[static_cast<std::size_t>(i)] = orthogonalised(matrices[static_cast<std::size_t>(i)], steps);
  };
  const auto count = static_cast<std::int64_t>(matrices.size());
  if (std::ranges::all_of(matrices, is_small))
    parallel_for(0, count, 1, replace);
  else
    replace(0, count);
}

}  // namespace

Muon::Muon(const NamedParameters& parameters, const MuonOptions& options)
    : NamedOptimizer("muon", {"step", "exp_avg", "exp_avg_sq", "momentum_buffer"}, split_groups(parameters, options),
                     options.step_in_backward) {}

void Muon::prepare(const at::Tensor& parameter, ParameterState& state, const Options& options) const {
  if (is_adamw(as<MuonOptions>(options).values)) return detail::prepare_adam(parameter, state, /*amsgrad=*/false);
  at::Tensor& buffer = state.tensors[kMomentumBuffer];
  if (!buffer.defined()) buffer = at::zeros_like(parameter);
}

bool Muon::elementwise(const Options& options) const { return is_adamw(as<MuonOptions>(options).values); }

void Muon::describe(detail::Slice& slice, ParameterState& state, const Options& options) {
  detail::describe_adam(slice, state, adamw_of(as<MuonOptions>(options).values), corrections_);
}

void Muon::update(detail::Batch& batch, const Options& options) {
  const MuonOptions& o = as<MuonOptions>(options).values;
  if (is_adamw(o)) return detail::update_adam(batch, adamw_of(o));
  // Elements; limits the additional memory for small matrices to 16 MiB.
  constexpr std::int64_t kMostTogether = 1 << 22;
  std::vector<at::Tensor> matrices;
  for (std::size_t begin = 0, end = 0; begin < batch.p.size(); begin = end) {
    matrices.clear();
    for (std::int64_t elements = 0; end < batch.p.size(); ++end) {
      const at::Tensor& p = batch.p[end];
      elements += p.numel();
      const bool fits = elements <= kMostTogether && is_small(p);
      if (!fits && end > begin) break;
      at::Tensor& buffer = batch.states[end]->tensors[kMomentumBuffer];
      buffer.mul_(o.momentum).add_(batch.g[end]);
      const at::Tensor direction = o.nesterov ? batch.g[end].add(buffer, o.momentum) : buffer;
      matrices.push_back(direction.reshape({direction.size(0), -1}));
    }
    orthogonalise(matrices, o.ns_steps);
    for (std::size_t i = begin; i < end; ++i) {
      const at::Tensor& matrix = matrices[i - begin];
      const double scale = 0.2 * std::sqrt(static_cast<double>(std::max(matrix.size(0), matrix.size(1))));
      if (o.weight_decay != 0) batch.p[i].mul_(1 - o.lr * o.weight_decay);
      batch.p[i].sub_(matrix.reshape(batch.p[i].sizes()), o.lr * scale);
    }
  }
}

AnyOptimizer muon(MuonOptions options) { return detail::make_later<Muon>("muon", std::move(options), muon_options); }

}  // namespace composer::optim
