#include "composer/step/gradient_average.h"

#include <utility>

#include "composer/core/model_access.h"
#include "composer/dist/average.h"
#include "composer/dist/data_parallel.h"
#include "composer/dist/world.h"
#include "composer/step/trained_parameters.h"

namespace composer {

GradientAverage::GradientAverage(State& state, std::shared_ptr<dist::World> world,
                                 const dist::DistributedOptions& options)
    : GradientSync(state, std::move(world), options) {}

GradientAverage::~GradientAverage() = default;

// A rank without samples trains nothing of the batch.
std::optional<std::vector<BatchRanks::Shard>> GradientAverage::shards(const Feed& feed, const Batch& batch) const {
  return feed.rules().count_samples(batch) == 0 ? std::optional(std::vector<Shard>()) : std::nullopt;
}

// The Reducer needs the same number of backward passes on all ranks. Where their number may differ, gradients are
// averaged after the last microbatch.
void GradientAverage::begin_batch(const Unevenness& of_ranks) {
  by_hand_ = divides_gradients() || options_.ddp_sync_strategy == dist::SyncStrategy::FORCED_SYNC ||
             of_ranks.may_lack_weight ||
             (of_ranks.numbers_differ && options_.ddp_sync_strategy == dist::SyncStrategy::MULTI_AUTO_SYNC);
  if (by_hand_ && options_.broadcast_buffers) model_.share_buffers();
}

bool GradientAverage::syncs(bool last) const {
  return !by_hand_ && (last || options_.ddp_sync_strategy == dist::SyncStrategy::MULTI_AUTO_SYNC);
}

void GradientAverage::before_forward(bool last) {
  if (!syncs(last)) return;
  const std::vector<at::Tensor> trained = trained_tensors(as_module(*state_.model));
  if (!parallel_ || !parallel_->matches(trained)) {
    parallel_.reset();  // destroyed before the next one is made: its hooks are attached to the same tensors
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

void GradientAverage::before_backward(const at::Tensor& loss, bool last) {
  if (syncs(last)) parallel_->before_backward({loss});
}

void GradientAverage::after_backward(bool last) {
  if (syncs(last)) parallel_->after_backward();
}

void GradientAverage::finish(Losses* batch_loss) {
  if (divides_gradients())
    optimizer_->reduce_gradients();
  else if (by_hand_)
    dist::average_gradients(*world_, trained_tensors(as_module(*state_.model)), options_.bucket_cap_mb);
  if (batch_loss) losses_.sum(*batch_loss);
}

DividedGradients::SumOverRanks GradientAverage::sum_of_divided() const {
  if (!divides_gradients()) return {};
  return [world = world_.get()](const at::Tensor& tensor) { world->sum(tensor); };
}

void GradientAverage::agree_on_overflow(const at::Tensor& found_inf) const {
  if (divides_gradients()) world_->max(found_inf);
}

}  // namespace composer
