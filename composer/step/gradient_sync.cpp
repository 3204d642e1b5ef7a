#include "composer/step/gradient_sync.h"

#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "composer/core/error.h"
#include "composer/core/model.h"
#include "composer/dist/average.h"
#include "composer/dist/data_parallel.h"
#include "composer/dist/world.h"
#include "composer/step/trained_parameters.h"

namespace composer {

GradientSync::GradientSync(State& state, std::shared_ptr<dist::World> world, const dist::DistributedOptions& options)
    : state_(state), world_(std::move(world)), options_(options), size_(world_->size()) {
  if (options.virtual_shards > 0) shards_.emplace(state, world_, options.virtual_shards);
  if (options.zero_stage > 0 && size_ > 1) optimizer_.emplace(state, world_, options);
}

GradientSync::~GradientSync() = default;

std::vector<GradientSync::Shard> GradientSync::shards(std::int64_t samples) const {
  std::vector<Shard> shards;
  for (std::int64_t index = shards_->first(); const std::int64_t size : shards_->sizes(samples)) {
    if (size > 0) shards.push_back({index, size});
    ++index;
  }
  return shards;
}

void GradientSync::enter_shard(std::int64_t index) { shards_->enter(index); }

void GradientSync::leave_shard(std::int64_t index, const Losses& losses) {
  shards_->leave(index);
  shard_losses_.emplace_back(index, losses);
}

// One message for all that ranks must know of each other before they train a batch.
GradientSync::Counts GradientSync::start(const Counts& own, bool may_change) {
  const auto count = static_cast<double>(own.microbatches);
  if (optimizer_) optimizer_->follow();
  const at::Tensor sums =
      at::tensor({own.weight, static_cast<double>(own.samples), static_cast<double>(own.tokens), count, count * count,
                  own.weight > 0 ? 0.0 : 1.0, may_change ? 1.0 : 0.0, own.seconds},
                 at::kDouble);
  world_->sum(sums);
  const double* sum = sums.const_data_ptr<double>();
  some_are_empty_ = sum[5] > 0;
  const bool differ = sum[4] * size_ != sum[3] * sum[3];
  // The Reducer wants one backward pass of each rank, or as many of each.
  by_hand_ = (optimizer_ && optimizer_->divides_gradients()) ||
             options_.ddp_sync_strategy == dist::SyncStrategy::FORCED_SYNC || some_are_empty_ || sum[6] > 0 ||
             (differ && options_.ddp_sync_strategy == dist::SyncStrategy::MULTI_AUTO_SYNC);
  if (shards_) {
    shards_->forget();
    shard_losses_.clear();
  } else if (by_hand_ && options_.broadcast_buffers) {
    share_buffers();
  }
  return {.weight = sum[0],
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
  const std::vector<at::Tensor> trained = trained_tensors(*state_.model);
  if (!parallel_ || !parallel_->matches(trained)) {
    const bool has_new = !parallel_ || !parallel_->has(trained);  // else some are frozen, and all are shared already
    dist::DataParallel::Named parameters, buffers;
    for (auto& [name, tensor] : trained_parameters(*state_.model))
      parameters.emplace_back(std::move(name), std::move(tensor));
    for (const auto& item : state_.model->named_buffers()) buffers.emplace_back(item.key(), item.value());
    parallel_.reset();  // before the next one: its hooks hang on the same tensors
    parallel_ = std::make_unique<dist::DataParallel>(
        world_, std::move(parameters), std::move(buffers),
        dist::DataParallelOptions{.bucket_cap_mb = options_.bucket_cap_mb,
                                  .find_unused_parameters = options_.find_unused_parameters,
                                  .gradients_in_bf16 = options_.gradients_in_bf16,
                                  .broadcast_buffers = options_.broadcast_buffers,
                                  .share_values = has_new});
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
    if (batch_loss) sum_shards(*batch_loss);
    shard_losses_.clear();
    return;
  }
  if (optimizer_ && optimizer_->divides_gradients())
    optimizer_->reduce_gradients();
  else if (by_hand_)
    dist::average_gradients(*world_, trained_tensors(*state_.model), options_.bucket_cap_mb);
  if (!batch_loss) return;
  if (some_are_empty_) take_names(*batch_loss);
  sum(*batch_loss);
}

// A row for each shard, which one rank alone fills, so that adding up ranks rounds nothing.
void GradientSync::sum_shards(Losses& losses) {
  const at::NoGradGuard no_grad;
  for (const auto& [shard, of_shard] : shard_losses_)
    if (losses.empty()) losses = of_shard;  // the last shard has no weight
  if (some_are_empty_) take_names(losses);
  const auto columns = static_cast<std::int64_t>(losses.size());
  const at::Tensor rows = at::zeros({shards_->shards(), columns}, at::TensorOptions(state_.device).dtype(at::kDouble));
  for (const auto& [shard, of_shard] : shard_losses_) {
    std::int64_t column = 0;
    for (const auto& [name, loss] : losses) {
      if (const at::Tensor* own = of_shard.find(name)) rows[shard][column].copy_(*own);
      ++column;
    }
  }
  world_->sum(rows);
  std::int64_t column = 0;
  Losses summed;
  for (const auto& [name, loss] : losses) {
    at::Tensor total = rows[0][column].clone();
    for (std::int64_t shard = 1; shard < shards_->shards(); ++shard) total.add_(rows[shard][column]);
    summed.set(name, total.to(loss.scalar_type()));
    ++column;
  }
  losses = std::move(summed);
}

std::int64_t GradientSync::smallest(std::int64_t size) const {
  const at::Tensor least = at::scalar_tensor(size > 0 ? size : std::numeric_limits<std::int64_t>::max(), at::kLong);
  world_->min(least);
  return least.item<std::int64_t>();
}

// A rank without samples has no losses, and does not know which ones the others have.
void GradientSync::take_names(Losses& losses) {
  std::string own;
  for (const auto& [name, loss] : losses) own += join(name, '\t', static_cast<int>(loss.scalar_type()), '\n');
  for (const std::string& names : world_->all_gather(own)) {
    if (names.empty()) continue;
    if (!losses.empty()) return;
    std::size_t from = 0;
    for (std::size_t to = names.find('\n'); to != std::string::npos; to = names.find('\n', from = to + 1)) {
      const std::size_t type = names.rfind('\t', to);
      const auto dtype = static_cast<at::ScalarType>(std::stoi(names.substr(type + 1, to - type - 1)));
      losses.set(names.substr(from, type - from), at::zeros({}, at::TensorOptions(state_.device).dtype(dtype)));
    }
    return;
  }
}

// In double, so that each sum is rounded once.
void GradientSync::sum(Losses& losses) {
  if (losses.empty()) return;
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> values;
  values.reserve(losses.size());
  for (const auto& [name, loss] : losses) values.push_back(loss.to(at::kDouble));
  const at::Tensor sums = at::stack(values);
  world_->sum(sums);
  std::int64_t index = 0;
  Losses summed;
  for (const auto& [name, loss] : losses) summed.set(name, sums.select(0, index++).to(loss.scalar_type()));
  losses = std::move(summed);
}

void GradientSync::share_buffers() {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> buffers;
  for (const at::Tensor& buffer : state_.model->buffers()) buffers.push_back(buffer.detach());
  if (!buffers.empty()) world_->broadcast(buffers);
}

void GradientSync::share_model() {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> parameters;
  for (const at::Tensor& parameter : state_.model->parameters()) parameters.push_back(parameter.detach());
  if (!parameters.empty()) world_->broadcast(parameters);
  share_buffers();
}

}  // namespace composer
