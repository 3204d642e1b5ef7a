#include "composer/optim/lion.h"

#include <utility>

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_sign.h>
#include <ATen/ops/zeros_like.h>

#include "composer/optim/batch.h"
#include "composer/optim/groups.h"

namespace composer::optim {

using detail::as;

namespace {

constexpr std::size_t kLionExpAvg = 0;

std::vector<Option<LionOptions>> lion_options() {
  using O = LionOptions;
  return detail::with_groups(option("lr", &O::lr).at_least(0).finite(), option("beta1", &O::beta1).from_0_below_1(),
                             option("beta2", &O::beta2).from_0_below_1(),
                             option("weight_decay", &O::weight_decay).at_least(0).finite());
}

}  // namespace

Lion::Lion(const NamedParameters& parameters, const LionOptions& options)
    : NamedOptimizer("lion", {"exp_avg"}, detail::build_groups("lion", parameters, options, lion_options),
                     options.step_in_backward) {}

void Lion::prepare(const at::Tensor& parameter, ParameterState& state, const Options&) const {
  if (!state.tensors[kLionExpAvg].defined()) state.tensors[kLionExpAvg] = at::zeros_like(parameter);
}

bool Lion::elementwise(const Options&) const { return true; }

void Lion::describe(detail::Slice& slice, ParameterState& state, const Options& options) {
  const LionOptions& o = as<LionOptions>(options).values;
  slice.update = detail::LionUpdate{.l2 = 0,
                                    .keep = 1 - o.lr * o.weight_decay,
                                    .beta1 = o.beta1,
                                    .beta2 = o.beta2,
                                    .lr = o.lr,
                                    .m = detail::memory(state.tensors[kLionExpAvg])};
}

void Lion::update(detail::Batch& batch, const Options& options) {
  const LionOptions& o = as<LionOptions>(options).values;
  const std::vector<at::Tensor> m = batch.column(kLionExpAvg);
  std::vector<at::Tensor> direction = at::_foreach_lerp(m, batch.g, 1 - o.beta1);
  at::_foreach_sign_(direction);
  if (o.weight_decay != 0) at::_foreach_mul_(batch.p, 1 - o.lr * o.weight_decay);
  at::_foreach_add_(batch.p, direction, -o.lr);
  at::_foreach_lerp_(m, batch.g, 1 - o.beta2);
}

AnyOptimizer lion(LionOptions options) { return detail::make_later<Lion>("lion", std::move(options), lion_options); }

}  // namespace composer::optim
