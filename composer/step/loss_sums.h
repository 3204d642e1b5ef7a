#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "composer/core/tensors.h"

namespace composer {

namespace dist {
class World;
}  // namespace dist

// Adds up the losses of a batch over ranks; all ranks make the same calls. A rank without samples has no losses, and a
// model may leave out a loss. The sums include each loss that any rank has, in one order.
class LossSums {
 public:
  LossSums(std::shared_ptr<dist::World> world, at::Device device) : world_(std::move(world)), device_(device) {}

  // Whether this rank's losses in the last sum had other names or dtypes than those of all ranks. If so on any rank,
  // forget_names() is called on all, and they exchange names in the next sum.
  bool has_others() const { return has_others_; }
  void forget_names() { agrees_ = false; }

  // Replaces this rank's losses by the sums over all ranks.
  void sum(Losses& losses);
  // Like sum(), but each shard has losses. They are added in the order of all shards, whichever rank trains a shard.
  using OfShard = std::pair<std::int64_t, Losses>;
  Losses sum_shards(const std::vector<OfShard>& own, std::int64_t shards);

 private:
  using Name = std::pair<std::string, at::ScalarType>;
  void agree(const Losses& own);
  Losses named(const at::Tensor& sums) const;

  std::shared_ptr<dist::World> world_;
  at::Device device_;
  std::vector<Name> names_;  // the losses in messages
  bool agrees_ = false;      // whether all ranks have these names
  bool has_others_ = false;  // whether this rank had other losses in the last batch
};

}  // namespace composer
