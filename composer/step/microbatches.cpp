#include "composer/step/microbatches.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <ATen/core/Tensor.h>

namespace composer {
namespace {

// Makes `to` a copy of `from`. Usually both are equal already, and the comparison is cheaper than a copy.
void assign(Batch& to, const Batch& from) {
  const auto same = [](const auto& a, const auto& b) { return a.first == b.first && a.second.is_same(b.second); };
  if (!std::ranges::equal(to, from, same)) to = from;
}

Batch slice_of(const Batch& batch, std::int64_t from, std::int64_t samples) {
  Batch part = batch;
  for (auto& [name, tensor] : part)
    if (tensor.dim() > 0) tensor = tensor.slice(0, from, from + samples);
  return part;
}

// The number of samples in a batch that is not split, as far as known. On several ranks, the size of the largest slice.
std::int64_t samples_of_batches(const Feed& feed, std::int64_t ranks) {
  const std::optional<std::int64_t> whole = feed.batch_size();
  const std::optional<std::int64_t> own = feed.loader() ? feed.loader()->batch_size() : std::nullopt;
  if (!whole || !own || *own == *whole) return whole.value_or(feed.samples());
  return (*whole + ranks - 1) / ranks;
}

}  // namespace

void Microbatches::split(const Feed& feed, BatchRanks& ranks) {
  const std::int64_t size = state_.device_train_microbatch_size;
  const auto shards = ranks.shards(feed, whole_);
  is_split_ = shards || size != 0;
  parts_.clear();
  if (shards) {  // each shard adds its losses to nothing, because the sum over shards has its own order
    for (std::int64_t from = 0; const auto& [index, samples] : *shards) {
      parts_.push_back({.batch = slice_of(whole_, from, samples), .first = true, .shard = index});
      from += samples;
    }
  } else if (is_split_) {
    for (Batch& part : feed.rules().split(whole_, size))
      parts_.push_back({.batch = std::move(part), .first = parts_.empty()});
  } else {
    parts_.resize(1);
  }
  is_alone_ = parts_.size() == 1 && ranks.alone();
  samples_at_once_ = size == 0 ? samples_of_batches(feed, state_.world_size) : size;
  of_all_ = {.weight = {}, .samples = feed.samples(), .tokens = feed.tokens_left(whole_)};
}

void Microbatches::weigh(const Feed& feed, BatchRanks& ranks, Seconds spent) {
  bool may_change = feed.rules().has_microbatch_transforms();
  BatchCounts own = {.samples = of_all_.samples,
                     .tokens = of_all_.tokens,
                     .microbatches = static_cast<std::int64_t>(parts_.size()),
                     .seconds = spent.count()};
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    Part& part = parts_[i];
    const Batch& batch = batch_of(part);
    part.weight = weights_.of(feed.rules(), batch, is_alone_);
    part.counted = weights_.counted_instead(feed.rules(), batch, part.weight);
    own.weight = own.weight + part.weight;
    own.counted += part.counted;
    if (part.weight.is(0))
      may_change = true;
    else
      last_ = i;
  }
  of_all_ = ranks.start(own, may_change);
  weights_.check(of_all_.weight, whole_, !parts_.empty(), is_alone_, of_all_.tokens);
}

void Microbatches::enter(const Feed& feed, BatchRanks& ranks, std::size_t index) {
  if (!are_weighed()) weigh(feed, ranks);
  const Part& part = parts_[index];
  index_ = index;
  ranks.enter_shard(part.shard);
  put(feed, batch_of(part), part.first);
  weight_ = part.weight;
  counted_ = part.counted;
  if (feed.rules().has_microbatch_transforms()) {
    weight_ = weights_.of_transformed(feed.rules(), state_.batch, part.weight);
    counted_ = weights_.counted_instead(feed.rules(), state_.batch, part.weight);
  }
  share_ = weight_ / of_all_.weight;
}

void Microbatches::enter_trial(const Feed& feed, const Batch& part, bool first) {
  put(feed, part, first);
  weight_ = {};
  share_ = 0.5;
}

void Microbatches::put(const Feed& feed, const Batch& part, bool first) {
  assign(state_.batch, part);  // a copy, because the optimizer may run the batch again
  feed.to_device(state_.batch, state_.device);
  is_first_ = first;
}

void Microbatches::leave() {
  assign(state_.batch, whole_);
  weights_.warn_of_zero_weight();
}

void Microbatches::forget() {
  whole_.clear();
  for (Part& part : parts_) part.batch.clear();
}

std::vector<std::int64_t> Microbatches::sample_indices(const Feed& feed) const {
  std::vector<std::int64_t> all = feed.sample_indices();
  if (all.empty()) return all;
  if (!is_split_) {
    if (feed.rules().count_samples(whole_) != static_cast<std::int64_t>(all.size()))
      all.clear();  // an algorithm has selected samples
    return all;
  }
  std::int64_t from = 0, sum = 0;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    if (i == index_) from = sum;
    sum += feed.rules().count_samples(parts_[i].batch);
  }
  if (sum != static_cast<std::int64_t>(all.size())) return {};
  const std::int64_t count = feed.rules().count_samples(parts_[index_].batch);
  return {all.begin() + from, all.begin() + from + count};
}

void Microbatches::weigh_loss(std::uint64_t runs_before) {
  if (weight_.depends_on_loss()) {
    const bool told = weight_.runs() != runs_before;  // whether the loss ran for which the model has stated the weight
    weights_.check_loss(told, weight_, of_all_.weight, whole_, is_alone_);
    if (!told) {
      weight_ = counted_;
      share_ = weight_ / LossWeight(of_all_.counted);
    }
  }
  if (weight_.depends_on_kind()) share_ = weights_.of_loss(state_.batch, weight_) / of_all_.weight;
  stop_gradients_without_weight();
}

// On a device, the host does not check whether a part has weight, and the gradient of a mean over nothing is NaN.
void Microbatches::stop_gradients_without_weight() const {
  if (!share_.is_on_device()) return;
  for (const auto& [name, output] : state_.outputs)
    if (output.defined() && output.requires_grad() && !output.is_leaf())
      output.register_hook([share = share_](const at::Tensor& gradient) { return share.value_or_zero(gradient); });
}

void Microbatches::zero_loss_without_weight() const {
  if (counts() && !share_.is_on_device()) return;
  for (auto& [name, loss] : state_.loss) loss = share_.value_or_zero(loss);
}

}  // namespace composer
