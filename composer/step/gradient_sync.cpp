#include "composer/step/gradient_sync.h"

#include <cmath>
#include <limits>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>

#include "composer/core/model_access.h"
#include "composer/dist/average.h"
#include "composer/dist/data_parallel.h"
#include "composer/dist/world.h"
#include "composer/step/trained_parameters.h"

namespace composer {

GradientSync::GradientSync(State& state, std::shared_ptr<dist::World> world, const dist::DistributedOptions& options)
    : state_(state),
      world_(std::move(world)),
      options_(options),
      size_(world_->size()),
      optimizer_(options.zero_stage > 0 && size_ > 1 ? std::make_unique<OptimizerShards>(state, world_, options)
                                                     : nullptr),
      model_(state, world_, optimizer_.get()),
      losses_(world_, state.device) {
  if (options.virtual_shards > 0) shards_.emplace(state, world_, options.virtual_shards);
}

GradientSync::~GradientSync() = default;

std::optional<std::vector<BatchRanks::Shard>> GradientSync::shards(const Feed& feed, const Batch& batch) const {
  const std::int64_t samples = feed.rules().count_samples(batch);
  std::vector<Shard> shards;
  if (!shards_) return samples == 0 ? std::optional(shards) : std::nullopt;  // without any, nothing is trained here
  for (std::int64_t index = shards_->first(); const std::int64_t size : shards_->sizes(samples)) {
    if (size > 0) shards.push_back({index, size});
    ++index;
  }
  return shards;
}

// Ranks are averaged, shards are added up.
LossWeight GradientSync::share_of_gradient(const LossWeight& share) const { return share * (shards_ ? 1 : size_); }

void GradientSync::enter_shard(std::int64_t index) {
  if (shards_) shards_->enter(index);
}

void GradientSync::leave_shard(const Losses& losses) {
  if (shards_) shard_losses_.emplace_back(shards_->leave(), losses);
}

// One message for all that ranks must know of each other before they train a batch.
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
  if (sum[8] > 0) losses_.learn_anew();
  if (sum[11] > 0) model_.share_new();
  if (sum[12] > 0 && sum[12] < size_) model_.check({trains ? "training mode" : "evaluation mode"});
  const bool differ = sum[4] * size_ != sum[3] * sum[3];
  // The Reducer wants one backward pass of each rank, or as many of each.
  by_hand_ = divides_gradients() || options_.ddp_sync_strategy == dist::SyncStrategy::FORCED_SYNC || sum[5] > 0 ||
             sum[6] > 0 || (differ && options_.ddp_sync_strategy == dist::SyncStrategy::MULTI_AUTO_SYNC);
  if (shards_) {
    shards_->forget();
    shard_losses_.clear();
  } else if (by_hand_ && options_.broadcast_buffers) {
    model_.share_buffers();
  }
  LossWeight weight = sum[0];
  if (sum[9] > 0) {  // it is not waited for: the sum is made where the weights are
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

bool GradientSync::syncs(bool last) const {
  return !by_hand_ && !shards_ && (last || options_.ddp_sync_strategy == dist::SyncStrategy::MULTI_AUTO_SYNC);
}

void GradientSync::before_forward(bool last) {
  if (!syncs(last)) return;
  const std::vector<at::Tensor> trained = trained_tensors(as_module(*state_.model));
  if (!parallel_ || !parallel_->matches(trained)) {
    parallel_.reset();  // before the next one: its hooks hang on the same tensors
    parallel_ = std::make_unique<dist::DataParallel>(
        world_, as_module(*state_.model),
        dist::DataParallelOptions{.bucket_cap_mb = options_.bucket_cap_mb,
                                  .find_unused_parameters = options_.find_unused_parameters,
                                  .gradients_in_bf16 = options_.gradients_in_bf16,
                                  .broadcast_buffers = options_.broadcast_buffers,
                                  .share_values = false});
  }
  parallel_->before_forward();
}

void GradientSync::before_backward(const at::Tensor& loss, bool last) {
  if (syncs(last)) parallel_->before_backward({loss});
}

void GradientSync::after_backward(bool last) {
  if (syncs(last)) parallel_->after_backward();
}

void GradientSync::finish(Losses* batch_loss) {
  if (shards_) {
    shards_->finish();
    if (batch_loss) *batch_loss = losses_.sum_shards(shard_losses_, shards_->shards());
    shard_losses_.clear();
    return;
  }
  if (divides_gradients())
    optimizer_->reduce_gradients();
  else if (by_hand_)
    dist::average_gradients(*world_, trained_tensors(as_module(*state_.model)), options_.bucket_cap_mb);
  if (batch_loss) losses_.sum(*batch_loss);
}

DividedGradients::SumOverRanks GradientSync::sum_of_divided() const {
  if (!divides_gradients()) return {};
  return [world = world_.get()](const at::Tensor& tensor) { world->sum(tensor); };
}

void GradientSync::agree_on_overflow(const at::Tensor& found_inf) const {
  if (divides_gradients()) world_->max(found_inf);
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
