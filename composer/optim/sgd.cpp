#include "composer/optim/sgd.h"

#include <cmath>
#include <optional>
#include <utility>

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/add.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/zeros_like.h>
#include <torch/version.h>

#include "composer/optim/batch.h"
#include "composer/optim/groups.h"

namespace composer::optim {

using detail::as;
using detail::Batch;

namespace {

constexpr std::size_t kSgdBuffer = 0;

template <class O>
std::vector<Option<O>> sgd_options() {
  return detail::with_groups(
      option("lr", &O::lr).at_least(0).finite(), option("momentum", &O::momentum).at_least(0).finite(),
      option("dampening", &O::dampening).at_least(0).finite(),
      option("weight_decay", &O::weight_decay).at_least(0).finite(), option("nesterov", &O::nesterov));
}

template <class Options>
void check_nesterov(const std::string& who, const Options& o) {
  if (o.nesterov && (o.momentum == 0 || o.dampening != 0))
    throw ConfigError(who, ": nesterov needs momentum > 0 and dampening 0, got momentum ", o.momentum, ", dampening ",
                      o.dampening);
}

// lr has no default, so 0 is rejected. A group may set 0, which freezes it.
template <class Options>
const Options& with_lr(const char* who, const Options& o) {
  if (!(o.lr > 0 && std::isfinite(o.lr))) throw ConfigError(who, ": lr must be > 0, got ", o.lr);
  return o;
}

// Before 2.15, libtorch's fused CPU kernel does not update most elements of bf16 and fp16 parameters:
// https://github.com/pytorch/pytorch/issues/191763
bool is_fused_wrongly(const Batch& batch) {
  constexpr bool kHasFault = TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 15;
  return kHasFault && !batch.p.empty() && batch.p.front().is_cpu() && batch.p.front().element_size() < 4;
}

// The factor of the gradient: 1 for the first one, which is not dampened, then 1 - dampening.
double fresh(ParameterState& state, double dampening) { return std::exchange(state.first, false) ? 1 : 1 - dampening; }

}  // namespace

void MomentumOptimizer::prepare(const at::Tensor& parameter, ParameterState& state, const Options& options) const {
  if (hyper(options).momentum == 0 || state.tensors[kSgdBuffer].defined()) return;
  state.tensors[kSgdBuffer] = at::zeros_like(parameter);
  state.first = true;
}

bool MomentumOptimizer::elementwise(const Options&) const { return true; }

void MomentumOptimizer::describe(detail::Slice& slice, ParameterState& state, const Options& options) {
  const Hyper h = hyper(options);
  slice.update = detail::SgdUpdate{.l2 = h.l2,
                                   .keep = h.keep,
                                   .momentum = h.momentum,
                                   .fresh = fresh(state, h.dampening),
                                   .lr = h.lr,
                                   .nesterov = h.nesterov,
                                   .buffer = h.momentum != 0 ? detail::memory(state.tensors[kSgdBuffer]) : nullptr};
}

// The fused kernels treat the first gradient specially only for a whole batch. Without dampening, a buffer of zeros
// gives the same result.
bool MomentumOptimizer::obeys_found_inf(const Batch& batch, const Options& options) const {
  const Hyper h = hyper(options);
  if (h.dampening != 0 && h.momentum != 0)
    throw ConfigError(
        dynamic_cast<const SGD*>(this) ? "sgd" : "decoupled_sgdw",
        ": dampening must be 0 for steps that may be skipped, unless tensors are dense floats on the CPU; got ",
        h.dampening);
  return batch.dense && !is_fused_wrongly(batch);
}

void MomentumOptimizer::update(Batch& batch, const Options& options) {
  const Hyper h = hyper(options);
  std::vector<at::Tensor> buffers;
  if (h.momentum != 0) buffers = batch.column(kSgdBuffer);
  if (h.keep != 1) {
    if (batch.found_inf.defined())
      at::_foreach_mul_(batch.p, at::add(at::mul(batch.found_inf, 1 - h.keep), h.keep));
    else
      at::_foreach_mul_(batch.p, h.keep);
  }
  if (batch.dense && (h.dampening == 0 || h.momentum == 0) && !is_fused_wrongly(batch)) {
    const auto found = batch.found_inf.defined() ? std::optional(batch.found_inf) : std::nullopt;
    return at::_fused_sgd_(batch.p, batch.g, buffers, h.l2, h.momentum, h.lr, /*dampening=*/0, h.nesterov,
                           /*maximize=*/false, /*is_first_step=*/false, /*grad_scale=*/{}, found);
  }
  std::vector<at::Tensor> d = h.l2 != 0 ? at::_foreach_add(batch.g, batch.p, h.l2) : batch.g;
  if (h.momentum != 0) {
    at::_foreach_mul_(buffers, h.momentum);
    for (std::size_t i = 0; i < buffers.size(); ++i) buffers[i].add_(d[i], fresh(*batch.states[i], h.dampening));
    d = h.nesterov ? at::_foreach_add(d, buffers, h.momentum) : buffers;
  }
  at::_foreach_add_(batch.p, d, -h.lr);
}

bool MomentumOptimizer::takes_sparse(const Options& options) const {
  const Hyper h = hyper(options);
  return h.momentum == 0 && h.l2 == 0 && h.keep == 1;
}

void MomentumOptimizer::update_sparse(at::Tensor& parameter, const at::Tensor& gradient, ParameterState&,
                                      const Options& options) {
  parameter.add_(gradient, -hyper(options).lr);
}

SGD::SGD(const NamedParameters& parameters, const SgdOptions& options)
    : MomentumOptimizer(
          "sgd", {"momentum_buffer"},
          detail::build_groups("sgd", parameters, with_lr("sgd", options), sgd_options<SgdOptions>, check_nesterov),
          options.step_in_backward) {}

MomentumOptimizer::Hyper SGD::hyper(const Options& options) const {
  const SgdOptions& o = as<SgdOptions>(options).values;
  return {o.lr, o.momentum, o.dampening, o.weight_decay, 1, o.nesterov};
}

DecoupledSGDW::DecoupledSGDW(const NamedParameters& parameters, const DecoupledSgdwOptions& options)
    : MomentumOptimizer("decoupled_sgdw", {"momentum_buffer"},
                        detail::build_groups("decoupled_sgdw", parameters, with_lr("decoupled_sgdw", options),
                                             sgd_options<DecoupledSgdwOptions>, check_nesterov),
                        options.step_in_backward) {
  detail::warn_of_decay("decoupled_sgdw", options.weight_decay);
}

MomentumOptimizer::Hyper DecoupledSGDW::hyper(const Options& options) const {
  const auto& group = as<DecoupledSgdwOptions>(options);
  const DecoupledSgdwOptions& o = group.values;
  const double share = detail::share_of_initial_lr(group);
  return {o.lr, o.momentum, o.dampening, 0, 1 - share * o.weight_decay, o.nesterov};
}

AnyOptimizer sgd(SgdOptions options) {
  with_lr("sgd", options);
  return detail::make_later<SGD>("sgd", std::move(options), sgd_options<SgdOptions>, check_nesterov);
}

AnyOptimizer decoupled_sgdw(DecoupledSgdwOptions options) {
  with_lr("decoupled_sgdw", options);
  return detail::make_later<DecoupledSGDW>("decoupled_sgdw", std::move(options), sgd_options<DecoupledSgdwOptions>,
                                           check_nesterov);
}

}  // namespace composer::optim
