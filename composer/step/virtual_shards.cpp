#include "composer/step/virtual_shards.h"

namespace composer {

std::optional<std::vector<BatchRanks::Shard>> VirtualShards::shards(const Feed& feed, const Batch& batch) const {
  std::vector<Shard> shards;
  for (std::int64_t index = sums_.first(); const std::int64_t size : sums_.sizes(feed.rules().count_samples(batch))) {
    if (size > 0) shards.push_back({index, size});
    ++index;
  }
  return shards;
}

void VirtualShards::begin_batch(const Unevenness&) {
  sums_.forget();
  of_shards_.clear();
}

void VirtualShards::finish(Losses* batch_loss) {
  sums_.finish();
  if (batch_loss) *batch_loss = losses_.sum_shards(of_shards_, sums_.shards());
  of_shards_.clear();
}

}  // namespace composer
