#include "composer/data/mds/stream_order.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "composer/data/rank_slice.h"
#include "composer/util/random.h"

namespace composer::data::detail {
namespace {

enum Purpose : std::uint8_t { SHARES = 20, SHARDS, BLOCK_SIZES, IN_BLOCK };

constexpr std::size_t kKnownEpochs = 3;  // batches of the next one are made while the last of this one are

// All orders are equally likely.
template <class T>
void shuffle_all(std::vector<T>& all, std::uint64_t start) {
  RandomStream random(start);
  for (std::size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[random.below(i)]);
}

}  // namespace

StreamOrder::StreamOrder(StreamOrderSetup setup) : setup_(std::move(setup)) {
  starts_.push_back(0);
  for (const std::int64_t count : setup_.shard_samples) starts_.push_back(starts_.back() + count);
  samples_ = starts_.back();
}

StreamOrder::Place StreamOrder::place(std::int64_t sample) const {
  const auto after = std::ranges::upper_bound(starts_, sample);
  const auto shard = static_cast<std::size_t>(after - starts_.begin()) - 1;
  return {shard, sample - starts_[shard]};
}

// Each node gives the same number of consecutive samples to each batch, and its slice of the last one.
StreamOrder::OfNode StreamOrder::of_node(std::int64_t place) const {
  if (setup_.nodes == 1) return {0, place};
  const std::int64_t each = setup_.batch_size / setup_.nodes;
  const std::int64_t batch = place / setup_.batch_size, in_batch = place % setup_.batch_size;
  const std::int64_t count = std::min(setup_.batch_size, samples_ - batch * setup_.batch_size);
  std::int64_t node = 0;
  while (in_batch >= rank_slice(count, node, setup_.nodes).end) ++node;
  return {static_cast<std::size_t>(node), batch * each + in_batch - rank_slice(count, node, setup_.nodes).begin};
}

std::shared_ptr<const StreamOrder::Epoch> StreamOrder::epoch_of(std::uint64_t seed, std::int64_t epoch) const {
  if (!setup_.shuffle) seed = 0, epoch = 0;
  const std::lock_guard lock(mutex_);
  for (auto known = epochs_.begin(); known != epochs_.end(); ++known)
    if ((*known)->seed == seed && (*known)->epoch == epoch) {
      epochs_.splice(epochs_.begin(), epochs_, known);
      return epochs_.front();
    }
  epochs_.push_front(made(seed, epoch));
  if (epochs_.size() > kKnownEpochs) epochs_.pop_back();
  return epochs_.front();
}

std::shared_ptr<const StreamOrder::Epoch> StreamOrder::made(std::uint64_t seed, std::int64_t epoch) const {
  std::vector<std::size_t> shards(setup_.shard_samples.size());
  std::iota(shards.begin(), shards.end(), 0);
  if (setup_.shuffle) shuffle_all(shards, hash64(seed, SHARES));  // the shares are those of all epochs
  auto made = std::make_shared<Epoch>(Epoch{seed, epoch, {}});
  const std::int64_t batches = samples_ / setup_.batch_size, rest = samples_ % setup_.batch_size;
  std::size_t next = 0;
  std::int64_t used = 0;  // samples of the next shard that an earlier node has
  for (std::int64_t n = 0; n < setup_.nodes; ++n) {
    Node node;
    std::int64_t share = batches * (setup_.batch_size / setup_.nodes) + rank_slice(rest, n, setup_.nodes).size();
    const std::int64_t all = share;
    while (share > 0) {
      const std::size_t shard = shards[next];
      const std::int64_t count = std::min(share, setup_.shard_samples[shard] - used);
      if (count > 0) node.spans.push_back({shard, starts_[shard] + used, count, 0});
      share -= count;
      used += count;
      if (used == setup_.shard_samples[shard]) ++next, used = 0;
    }
    if (setup_.shuffle) shuffle_all(node.spans, hash64(seed, SHARDS, epoch, n));
    std::int64_t at = 0;
    for (Span& span : node.spans) span.at = std::exchange(at, at + span.count);
    if (setup_.shuffle) node.blocks = block_ends(seed, epoch, static_cast<std::size_t>(n), all);
    made->nodes.push_back(std::move(node));
  }
  return made;
}

// Blocks have from 3/4 to 5/4 of the size, so that their ends are elsewhere in each epoch. The first ones are smaller,
// so that the first batch needs only a few shards.
std::vector<std::int64_t> StreamOrder::block_ends(std::uint64_t seed, std::int64_t epoch, std::size_t node,
                                                  std::int64_t count) const {
  const std::int64_t size = setup_.block_size;
  std::vector<std::int64_t> ends = {0};
  if (count <= size) {
    if (count > 0) ends.push_back(count);
    return ends;
  }
  RandomStream random(hash64(seed, BLOCK_SIZES, epoch, node));
  for (std::int64_t most = std::max<std::int64_t>(size / 16, 1); ends.back() < count; most = std::min(2 * most, size)) {
    const std::int64_t least = most - most / 4;
    const auto drawn = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(2 * (most / 4) + 1)));
    ends.push_back(std::min(ends.back() + least + drawn, count));
  }
  return ends;
}

std::shared_ptr<const std::vector<std::int64_t>> StreamOrder::block_of(const Epoch& epoch, std::size_t node,
                                                                       std::size_t block) const {
  const std::lock_guard lock(mutex_);
  for (auto known = blocks_.begin(); known != blocks_.end(); ++known)
    if (known->seed == epoch.seed && known->epoch == epoch.epoch && known->node == node && known->block == block) {
      blocks_.splice(blocks_.begin(), blocks_, known);
      return known->samples;
    }
  const Node& of = epoch.nodes[node];
  const std::int64_t begin = of.blocks[block], end = of.blocks[block + 1];
  std::vector<std::int64_t> samples;
  samples.reserve(static_cast<std::size_t>(end - begin));
  for (auto span = std::prev(std::ranges::upper_bound(of.spans, begin, {}, &Span::at));
       span != of.spans.end() && span->at < end; ++span)
    for (std::int64_t at = std::max(span->at, begin); at < std::min(span->at + span->count, end); ++at)
      samples.push_back(span->first + at - span->at);
  shuffle_all(samples, hash64(epoch.seed, IN_BLOCK, epoch.epoch, node, block));
  auto made = std::make_shared<const std::vector<std::int64_t>>(std::move(samples));
  blocks_.push_front({epoch.seed, epoch.epoch, node, block, made});
  if (blocks_.size() > static_cast<std::size_t>(2 * setup_.nodes + 1)) blocks_.pop_back();
  return made;
}

std::vector<std::int64_t> StreamOrder::part(std::uint64_t seed, std::int64_t epoch, std::int64_t from,
                                            std::int64_t count) const {
  const auto of = epoch_of(seed, epoch);
  std::vector<std::int64_t> samples;
  samples.reserve(static_cast<std::size_t>(count));
  std::shared_ptr<const std::vector<std::int64_t>> block;
  std::size_t block_node = 0;
  std::int64_t block_begin = 0, block_end = 0;
  for (std::int64_t place = from; place < from + count; ++place) {
    const auto [n, at] = of_node(place);
    const Node& node = of->nodes[n];
    if (!setup_.shuffle) {
      const Span& span = *std::prev(std::ranges::upper_bound(node.spans, at, {}, &Span::at));
      samples.push_back(span.first + at - span.at);
      continue;
    }
    if (!block || block_node != n || at < block_begin || at >= block_end) {
      const auto end = std::ranges::upper_bound(node.blocks, at);
      block_node = n;
      block_begin = *std::prev(end);
      block_end = *end;
      block = block_of(*of, n, static_cast<std::size_t>(end - node.blocks.begin()) - 1);
    }
    samples.push_back((*block)[static_cast<std::size_t>(at - block_begin)]);
  }
  return samples;
}

std::vector<std::size_t> StreamOrder::shards(std::uint64_t seed, std::int64_t epoch, std::int64_t from,
                                             std::int64_t count, std::int64_t ahead) const {
  const auto of = epoch_of(seed, epoch);
  std::vector<std::size_t> needed;
  std::vector<bool> has(setup_.shard_samples.size());
  for (std::int64_t place = from; place < from + count;) {
    const auto [n, at] = of_node(place);
    std::int64_t run = 1;  // places of this node
    while (place + run < from + count && of_node(place + run).node == n) ++run;
    place += run;
    const Node& node = of->nodes[n];
    std::int64_t begin = at, end = at + run + ahead;
    if (setup_.shuffle) {  // any sample of a block may be first
      begin = *std::prev(std::ranges::upper_bound(node.blocks, begin));
      const auto last = std::ranges::lower_bound(node.blocks, end);
      end = last == node.blocks.end() ? node.blocks.back() : *last;
    }
    for (auto span = std::prev(std::ranges::upper_bound(node.spans, begin, {}, &Span::at));
         span != node.spans.end() && span->at < end; ++span)
      if (!has[span->shard]) {
        has[span->shard] = true;
        needed.push_back(span->shard);
      }
  }
  return needed;
}

}  // namespace composer::data::detail
