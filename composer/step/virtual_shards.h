#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "composer/step/gradient_sync.h"
#include "composer/step/shard_sums.h"

namespace composer {

// Splits batches into the same number of shards whatever the number of ranks, also for one rank, and adds up their
// gradients and losses in one order.
class VirtualShards final : public GradientSync {
 public:
  VirtualShards(State& state, const std::shared_ptr<dist::World>& world, const dist::DistributedOptions& options)
      : GradientSync(state, world, options), sums_(state, world, options.virtual_shards) {}

  std::optional<std::vector<Shard>> shards(const Feed& feed, const Batch& batch) const override;
  void enter_shard(std::int64_t index) override { sums_.enter(index); }
  void leave_shard(const Losses& losses) override { of_shards_.emplace_back(sums_.leave(), losses); }
  void finish(Losses* batch_loss) override;

 private:
  void begin_batch(const Unevenness& of_ranks) override;

  ShardSums sums_;
  std::vector<LossSums::OfShard> of_shards_;  // losses of the shards of this rank
};

}  // namespace composer
