#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/state.h"

namespace composer {

namespace dist {
class OrderedSum;
class World;
}  // namespace dist

// What the shards of a batch leave in the model, added up in an order that does not depend on the number of ranks. Each
// shard begins with the buffers and random numbers that the batch began with, so nothing tells which rank trains it.
// Buffers of floating-point numbers become the mean over shards, others the largest of any.
class ShardSums {
 public:
  ShardSums(State& state, std::shared_ptr<dist::World> world, std::int64_t shards);
  ~ShardSums();
  ShardSums(const ShardSums&) = delete;
  ShardSums& operator=(const ShardSums&) = delete;

  std::int64_t shards() const { return shards_; }
  std::int64_t first() const { return first_; }  // of this rank
  // The samples of each shard of this rank. Collective. Throws DataError if its batch has other samples than they have.
  std::vector<std::int64_t> sizes(std::int64_t samples) const;

  void forget();  // what was added: the next shard begins a batch, or another pass over it
  // Around each shard of this rank that has samples, in their order; shards count those of all ranks.
  void enter(std::int64_t shard);
  std::int64_t leave();  // the shard that was entered
  void finish();         // collective, after the last one: the model has the gradients and buffers of all shards

 private:
  void begin();
  void restore_buffers();
  void add_up_to(std::int64_t shard);  // those before it have no samples
  void add();

  State& state_;
  std::shared_ptr<dist::World> world_;
  std::int64_t shards_, of_rank_, first_;
  std::unique_ptr<dist::OrderedSum> sum_;    // of gradients, then of floating-point buffers
  std::vector<at::Tensor> parameters_;       // that it was made for
  std::vector<at::Tensor> buffers_, begun_;  // of the model, and what they were when the batch began
  std::vector<at::Tensor> largest_;          // of the other buffers
  bool begun_sum_ = false;
  std::int64_t next_ = 0;  // shard to be added
};

}  // namespace composer
