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

// Adds up the losses of a batch over ranks, which call it alike. A rank without samples has none, and a model may leave
// one out: the sums are of those that any rank has, in one order.
class LossSums {
 public:
  LossSums(std::shared_ptr<dist::World> world, at::Device device) : world_(std::move(world)), device_(device) {}

  // Ranks tell each other the names of their losses in the next sum if this rank had others than all in the last one,
  // or another rank had.
  bool has_others() const { return has_others_; }
  void learn_anew() { agrees_ = false; }

  // Replaces this rank's losses by the sums of all.
  void sum(Losses& losses);
  // The same where each shard has losses, in the order of all of them, whichever rank trains one.
  using OfShard = std::pair<std::int64_t, Losses>;
  Losses sum_shards(const std::vector<OfShard>& own, std::int64_t shards);

 private:
  using Name = std::pair<std::string, at::ScalarType>;
  void agree(const Losses& own);
  Losses named(const at::Tensor& sums) const;

  std::shared_ptr<dist::World> world_;
  at::Device device_;
  std::vector<Name> names_;  // those of messages
  bool agrees_ = false;      // with all ranks on these
  bool has_others_ = false;  // this rank, in the last batch
};

}  // namespace composer
