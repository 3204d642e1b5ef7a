#include "composer/step/joined_ranks.h"

#include "composer/step/gradient_average.h"
#include "composer/step/virtual_shards.h"

namespace composer {

void JoinedRanks::join(State& state, const std::shared_ptr<dist::World>& world,
                       const dist::DistributedOptions& options) {
  if (options.virtual_shards > 0)
    sync_ = std::make_unique<VirtualShards>(state, world, options);
  else
    sync_ = std::make_unique<GradientAverage>(state, world, options);
  now_ = sync_.get();
}

void JoinedRanks::check_divides(const Engine& engine) const {
  if (const OptimizerShards* shards = optimizer_shards()) shards->check_algorithms(engine);
}

}  // namespace composer
