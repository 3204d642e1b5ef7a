#include "composer/step/gradient_sync.h"

#include <cmath>
#include <limits>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>

#include "composer/core/model_access.h"
#include "composer/dist/world.h"

namespace composer {

GradientSync::GradientSync(State& state, std::shared_ptr<dist::World> world, const dist::DistributedOptions& options)
    : state_(state),
      world_(std::move(world)),
      options_(options),
      size_(world_->size()),
      optimizer_(options.zero_stage > 0 && size_ > 1 ? std::make_unique<OptimizerShards>(state, world_, options)
                                                     : nullptr),
      model_(state, world_, optimizer_.get()),
      losses_(world_, state.device) {}

// Sends everything that ranks must know about each other before they train a batch, in one message.
BatchCounts GradientSync::start(const BatchCounts& own, bool may_change) {
  const auto count = static_cast<double>(own.microbatches);
  const bool trains = is_training(as_module(*state_.model));
  const at::Tensor sums =
      at::tensor({own.weight.number(), static_cast<double>(own.samples), static_cast<double>(own.tokens), count,
                  count * count, own.weight.is(0) ? 1.0 : 0.0, may_change ? 1.0 : 0.0, own.seconds,
                  losses_.has_others() ? 1.0 : 0.0, own.weight.is_on_device() ? 1.0 : 0.0, own.counted,
                  size_ > 1 && model_.has_changed() ? 1.0 : 0.0, trains ? 0.0 : 1.0},
                 at::kDouble);
  world_->sum(sums);
  const double* sum = sums.const_data_ptr<double>();
  if (sum[8] > 0) losses_.forget_names();
  if (sum[11] > 0) model_.share_new();
  if (sum[12] > 0 && sum[12] < size_) model_.check({trains ? "training mode" : "evaluation mode"});
  begin_batch({.may_lack_weight = sum[5] > 0 || sum[6] > 0, .numbers_differ = sum[4] * size_ != sum[3] * sum[3]});
  LossWeight weight = sum[0];
  if (sum[9] > 0) {  // the host does not wait for the weights: the sum is made on the device
    const at::Tensor all = own.weight.on(state_.device);
    world_->sum(all);
    weight = all;
  }
  return {.weight = weight,
          .counted = sum[10],
          .samples = std::llround(sum[1]),
          .tokens = std::llround(sum[2]),
          .microbatches = std::llround(sum[3]),
          .seconds = sum[7] / size_};
}

void GradientSync::before_step() {
  if (optimizer_) optimizer_->before_step();
}

void GradientSync::after_step() {
  if (optimizer_) optimizer_->after_step();
}

std::int64_t GradientSync::smallest(std::int64_t size) const {
  const at::Tensor least = at::scalar_tensor(size > 0 ? size : std::numeric_limits<std::int64_t>::max(), at::kLong);
  world_->min(least);
  return least.item<std::int64_t>();
}

}  // namespace composer
