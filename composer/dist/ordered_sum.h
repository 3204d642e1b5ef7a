#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/export.h"

namespace composer::dist {

class World;

// Sums over the shards of a batch, with bits that do not depend on the number of ranks. The number of shards is fixed.
// Each rank computes an equal number of consecutive shards, and all are added by the same binary tree:
//   ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7))
// The levels inside a rank are added while the rank goes through its shards, the upper levels over ranks. A trainer
// whose shards are its microbatches gets the same weights on 1, 2 and 4 ranks, if random numbers depend on the shard
// and all ranks have the same number of threads.
//
// Needs memory for log2(shards of this rank) copies of the tensors, at least for one. With several ranks, finish()
// needs memory for two copies.
class COMPOSER_EXPORT OrderedSum {
 public:
  // `like` has the shapes and dtypes of the tensors to add, which are on one device. Throws ConfigError unless `shards`
  // is a power of two that the number of ranks divides.
  OrderedSum(std::shared_ptr<World> world, std::int64_t shards, const std::vector<at::Tensor>& like);
  ~OrderedSum();
  OrderedSum(const OrderedSum&) = delete;
  OrderedSum& operator=(const OrderedSum&) = delete;

  std::int64_t first_shard() const;  // of this rank
  std::int64_t shard_count() const;  // of this rank

  // Adds the tensors of this rank's next shard. Undefined tensors count as 0. Throws ConfigError for other shapes or
  // dtypes, and for more than shard_count() shards.
  void add(const std::vector<at::Tensor>& tensors);
  // To be called on all ranks after the last shard. Returns the sums over all shards; a sum is undefined if the tensor
  // was undefined in all shards. The next add() begins the next sum. Throws ConfigError if shards are missing.
  std::vector<at::Tensor> finish();
  // Forgets what was added since the last finish().
  void reset();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace composer::dist
