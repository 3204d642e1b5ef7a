#include "composer/data/sampler.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "composer/core/error.h"
#include "composer/data/rank_slice.h"
#include "composer/util/random.h"

namespace composer::data::detail {
namespace {

constexpr std::uint64_t kOrder = 0;
constexpr std::size_t kLeastKnown = 2, kMostKnown = 16;  // least and largest number of cached orders

}  // namespace

std::vector<std::int64_t> shuffled(std::int64_t samples, RandomStream random) {  // as Fisher and Yates do
  std::vector<std::int64_t> order(static_cast<std::size_t>(samples));
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::size_t other = random.below(i + 1);
    order[i] = order[other];
    order[other] = static_cast<std::int64_t>(i);
  }
  return order;
}

Sampler::Sampler(SamplerOptions options) : options_(std::move(options)) {
  const auto& [who, samples, batch_size, shuffle, seed, drop_last, weights, drawn, rank, world_size, shards, arrange,
               part] = options_;
  if (samples < 1) throw DataError(who, ": the data has no samples");
  if (weights && weights->size() != samples)
    throw DataError(who, ": weights has ", weights->size(), " numbers, and the data has ", samples, " samples");
  if (weights && !shuffle)
    throw ConfigError(who, ": weights draw samples at random, and shuffle is false; leave one of them out");
  if (!weights && drawn != 0) throw ConfigError(who, ": samples_per_epoch needs weights");
  epoch_ = drawn > 0 ? drawn : samples;
  batches_ = epoch_ / batch_size + (!drop_last && epoch_ % batch_size > 0);
  if (batches_ == 0)
    throw ConfigError(who, ": drop_last with a batch_size of ", batch_size, " leaves no batch of ", epoch_, " samples");
  rank_slice(0, rank, world_size, shards);  // throws for an invalid rank or number of shards
}

std::shared_ptr<Sampler> Sampler::for_rank(std::int64_t rank, std::int64_t world_size, std::int64_t shards) const {
  if (is_sliced())
    throw ConfigError(options_.who, ": the loader already reads the slice of rank ", options_.rank, " of ",
                      options_.world_size, "; pass for_rank() the loader that it was made from");
  SamplerOptions options = options_;
  options.rank = rank;
  options.world_size = world_size;
  options.shards = shards;
  auto sampler = std::make_shared<Sampler>(options);
  sampler->default_seed_ = default_seed_;
  return sampler;
}

std::int64_t Sampler::batch_size() const {
  return rank_slice(options_.batch_size, options_.rank, options_.world_size, options_.shards).size();
}

void Sampler::check(std::int64_t epoch, std::int64_t batch) const {
  if (epoch < 0 || batch < 0 || batch > batches_)
    throw ConfigError(options_.who, ": there is no batch ", batch, " in epoch ", epoch, "; an epoch has ", batches_,
                      " batches");
}

void Sampler::set_default_seed(std::uint64_t seed) {
  const std::lock_guard lock(mutex_);
  default_seed_ = seed;
  known_.clear();
  dropped_.clear();
}

Sampler::Span Sampler::span(std::int64_t batch) const {
  const auto [from, count] = span_of_all(batch);
  const RankSlice slice = rank_slice(count, options_.rank, options_.world_size, options_.shards);
  return {from + slice.begin, slice.size()};
}

Sampler::Span Sampler::span_of_all(std::int64_t batch) const {
  const std::int64_t from = batch * options_.batch_size;
  return {from, std::min(options_.batch_size, epoch_ - from)};
}

std::vector<std::int64_t> Sampler::indices(std::int64_t epoch, Span span) const {
  if (options_.part) return options_.part(seed(), epoch, span.from, span.count);
  const std::shared_ptr<const Order> known = order(epoch);
  std::vector<std::int64_t> all(static_cast<std::size_t>(span.count));
  for (std::int64_t i = 0; i < span.count; ++i)
    all[static_cast<std::size_t>(i)] = known ? (*known)[static_cast<std::size_t>(span.from + i)] : span.from + i;
  return all;
}

std::shared_ptr<const Sampler::Order> Sampler::order(std::int64_t epoch) const {
  if (!options_.shuffle && !options_.arrange) return nullptr;
  const std::lock_guard lock(mutex_);
  if (const auto found = std::ranges::find(known_, epoch, &Known::epoch); found != known_.end()) {
    if (found - known_.begin() >= static_cast<std::ptrdiff_t>(kLeastKnown)) since_use_ = 0;
    std::rotate(known_.begin(), found, found + 1);
    return known_.front().order;
  }
  if (std::erase(dropped_, epoch) > 0) {  // a reader still needs this order
    most_ = std::min(most_ + 1, kMostKnown);
    since_use_ = 0;
  } else if (++since_use_ > 2 * most_) {
    most_ = kLeastKnown;
  }
  drop_beyond(most_ - 1);
  known_.insert(known_.begin(), {epoch, std::make_shared<const Order>(new_order(epoch))});
  return known_.front().order;
}

Sampler::Order Sampler::new_order(std::int64_t epoch) const {
  const RandomStream random(hash64(seed(), kOrder, epoch));
  Order order;
  if (options_.weights) {
    order = options_.weights->draw(epoch_, random);
  } else if (options_.shuffle) {
    order = shuffled(options_.samples, random);
  } else {
    order.resize(static_cast<std::size_t>(options_.samples));
    std::iota(order.begin(), order.end(), 0);
  }
  if (options_.arrange) options_.arrange(order, seed(), epoch);
  return order;
}

void Sampler::drop_beyond(std::size_t kept) const {
  for (; known_.size() > kept; known_.pop_back()) dropped_.push_back(known_.back().epoch);
  if (dropped_.size() > kMostKnown) dropped_.erase(dropped_.begin(), dropped_.end() - kMostKnown);
}

}  // namespace composer::data::detail
