#include "composer/step/shard_sums.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/scalar_tensor.h>

#include "composer/core/error.h"
#include "composer/core/model_access.h"
#include "composer/data/rank_slice.h"
#include "composer/dist/ordered_sum.h"
#include "composer/dist/world.h"
#include "composer/step/trained_parameters.h"
#include "composer/util/own_random.h"
#include "composer/util/random.h"

namespace composer {
namespace {

constexpr std::uint64_t kStream = 0x73686172;  // other streams of the seed begin with other numbers

bool is_summed(const at::Tensor& buffer) { return at::isFloatingType(buffer.scalar_type()); }

}  // namespace

ShardSums::ShardSums(State& state, std::shared_ptr<dist::World> world, std::int64_t shards)
    : state_(state),
      world_(std::move(world)),
      shards_(shards),
      of_rank_(shards / world_->size()),
      first_(world_->rank() * of_rank_) {}

ShardSums::~ShardSums() = default;

std::vector<std::int64_t> ShardSums::sizes(std::int64_t samples) const {
  const at::Tensor all = at::scalar_tensor(samples, at::kLong);
  world_->sum(all);
  std::vector<std::int64_t> sizes;
  for (std::int64_t shard = first_; shard < first_ + of_rank_; ++shard)
    sizes.push_back(data::rank_slice(all.item<std::int64_t>(), shard, shards_).size());
  const std::int64_t expected = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  const at::Tensor wrong = at::scalar_tensor(expected == samples ? 0 : 1, at::kLong);
  world_->max(wrong);
  if (wrong.item<std::int64_t>() != 0)
    throw DataError("virtual_shards: rank ", world_->rank(), " has ", samples, " of ", all.item<std::int64_t>(),
                    " samples of the batch, and its shards have ", expected,
                    "; they need loaders of whole batches, and no algorithm that changes the number of samples");
  return sizes;
}

void ShardSums::forget() { begun_sum_ = false; }

void ShardSums::begin() {
  if (std::exchange(begun_sum_, true)) return;
  std::vector<at::Tensor> parameters = trained_tensors(as_module(*state_.model));
  const std::vector<at::Tensor> buffers = composer::buffers(as_module(*state_.model));
  const auto same = [](const at::Tensor& a, const at::Tensor& b) { return a.is_same(b); };
  if (!sum_ || !std::ranges::equal(parameters, parameters_, same) || !std::ranges::equal(buffers, buffers_, same)) {
    parameters_ = std::move(parameters);
    buffers_ = buffers;
    std::vector<at::Tensor> like = parameters_;
    std::ranges::copy_if(buffers_, std::back_inserter(like), is_summed);
    sum_ = std::make_unique<dist::OrderedSum>(world_, shards_, like);
  }
  sum_->reset();
  next_ = first_;
  begun_.clear();
  largest_.clear();
  for (const at::Tensor& buffer : buffers_) {
    begun_.push_back(buffer.detach().clone());
    if (!is_summed(buffer)) largest_.push_back(buffer.detach().clone());
  }
}

void ShardSums::restore_buffers() {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < buffers_.size(); ++i) buffers_[i].copy_(begun_[i]);
}

void ShardSums::enter(std::int64_t shard) {
  begin();
  add_up_to(shard);
  restore_buffers();
  current_random().seed(hash64(state_.seed, kStream, state_.timestamp.batch, shard));
}

std::int64_t ShardSums::leave() {
  add();
  return next_++;
}

// Moves the gradients into the sum, so the next shard begins without gradients.
void ShardSums::add() {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> tensors;
  for (const at::Tensor& parameter : parameters_) {
    tensors.push_back(parameter.grad());
    parameter.mutable_grad().reset();
  }
  std::size_t other = 0;
  for (const at::Tensor& buffer : buffers_)
    if (is_summed(buffer)) {
      tensors.push_back(buffer.detach());
    } else {
      at::Tensor& largest = largest_[other++];
      largest.copy_(at::maximum(largest, buffer));
    }
  sum_->add(tensors);
}

void ShardSums::add_up_to(std::int64_t shard) {
  if (next_ < shard) restore_buffers();
  for (; next_ < shard; ++next_) add();
}

void ShardSums::finish() {
  const at::NoGradGuard no_grad;
  begin();
  begun_sum_ = false;
  add_up_to(first_ + of_rank_);
  const std::vector<at::Tensor> sums = sum_->finish();
  for (std::size_t i = 0; i < parameters_.size(); ++i)  // variable_data(): not views
    parameters_[i].mutable_grad() = sums[i].defined() ? sums[i].variable_data() : at::Tensor();
  std::size_t next = parameters_.size(), other = 0;
  for (const at::Tensor& buffer : buffers_) {
    if (is_summed(buffer)) {
      buffer.copy_(sums[next++].div_(shards_));
    } else {
      world_->max(largest_[other]);
      buffer.copy_(largest_[other++]);
    }
  }
}

}  // namespace composer
