#include "composer/optim/rmsprop.h"

#include <utility>

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcdiv.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_clamp_min.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_sqrt.h>
#include <ATen/ops/zeros_like.h>

#include "composer/optim/batch.h"
#include "composer/optim/groups.h"

namespace composer::optim {

using detail::as;

namespace {

struct RMSpropState {
  enum Index : std::size_t { STEP, SQUARE_AVG, MOMENTUM_BUFFER, GRAD_AVG };
};

std::vector<Option<RmspropOptions>> rmsprop_options() {
  using O = RmspropOptions;
  return detail::with_groups(
      option("lr", &O::lr).at_least(0).finite(), option("alpha", &O::alpha).from_0_below_1(),
      option("eps", &O::eps).at_least(0).finite(), option("momentum", &O::momentum).at_least(0).finite(),
      option("weight_decay", &O::weight_decay).at_least(0).finite(), option("centered", &O::centered));
}

}  // namespace

RMSprop::RMSprop(const NamedParameters& parameters, const RmspropOptions& options)
    : NamedOptimizer("rmsprop", {"step", "square_avg", "momentum_buffer", "grad_avg"},
                     detail::build_groups("rmsprop", parameters, options, rmsprop_options), options.step_in_backward) {}

void RMSprop::prepare(const at::Tensor& parameter, ParameterState& state, const Options& options) const {
  const RmspropOptions& o = as<RmspropOptions>(options).values;
  const auto make = [&](RMSpropState::Index which, bool wanted) {
    at::Tensor& tensor = state.tensors[which];
    if (wanted && !tensor.defined()) tensor = at::zeros_like(parameter);
  };
  if (!state.tensors[RMSpropState::STEP].defined()) state.tensors[RMSpropState::STEP] = detail::step_count(parameter);
  make(RMSpropState::SQUARE_AVG, true);
  make(RMSpropState::MOMENTUM_BUFFER, o.momentum != 0);
  make(RMSpropState::GRAD_AVG, o.centered);
}

bool RMSprop::elementwise(const Options&) const { return true; }

void RMSprop::describe(detail::Slice& slice, ParameterState& state, const Options& options) {
  const RmspropOptions& o = as<RmspropOptions>(options).values;
  detail::count(state.tensors[RMSpropState::STEP]);  // unused here, but PyTorch's checkpoints contain it
  slice.update = detail::RmspropUpdate{
      .l2 = o.weight_decay,
      .alpha = o.alpha,
      .eps = o.eps,
      .momentum = o.momentum,
      .lr = o.lr,
      .s = detail::memory(state.tensors[RMSpropState::SQUARE_AVG]),
      .buffer = o.momentum != 0 ? detail::memory(state.tensors[RMSpropState::MOMENTUM_BUFFER]) : nullptr,
      .mean = o.centered ? detail::memory(state.tensors[RMSpropState::GRAD_AVG]) : nullptr};
}

void RMSprop::update(detail::Batch& batch, const Options& options) {
  const RmspropOptions& o = as<RmspropOptions>(options).values;
  batch.count_step();
  const std::vector<at::Tensor> squares = batch.column(RMSpropState::SQUARE_AVG);
  const std::vector<at::Tensor> g = o.weight_decay != 0 ? at::_foreach_add(batch.g, batch.p, o.weight_decay) : batch.g;
  at::_foreach_mul_(squares, o.alpha);
  at::_foreach_addcmul_(squares, g, g, 1 - o.alpha);
  std::vector<at::Tensor> root;
  if (o.centered) {
    const std::vector<at::Tensor> means = batch.column(RMSpropState::GRAD_AVG);
    at::_foreach_lerp_(means, g, 1 - o.alpha);
    root = at::_foreach_addcmul(squares, means, means, -1);
    at::_foreach_clamp_min_(root, 0);  // rounding may make it negative
    at::_foreach_sqrt_(root);
  } else {
    root = at::_foreach_sqrt(squares);
  }
  at::_foreach_add_(root, o.eps);
  if (o.momentum == 0) return at::_foreach_addcdiv_(batch.p, g, root, -o.lr);
  const std::vector<at::Tensor> buffers = batch.column(RMSpropState::MOMENTUM_BUFFER);
  at::_foreach_mul_(buffers, o.momentum);
  at::_foreach_addcdiv_(buffers, g, root);
  at::_foreach_add_(batch.p, buffers, -o.lr);
}

AnyOptimizer rmsprop(RmspropOptions options) {
  return detail::make_later<RMSprop>("rmsprop", std::move(options), rmsprop_options);
}

}  // namespace composer::optim
