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

// Adds up the gradients and buffers of the shards of a batch, in an order that does not depend on the number of ranks.
// Each shard begins with the buffers of the batch's beginning and with random numbers of its own, so the result does
// not depend on the rank that trains it. Buffers of floating-point numbers become the mean over shards, other buffers
// the elementwise maximum.
class ShardSums {
 public:
  ShardSums(State& state, std::shared_ptr<dist::World> world, std::int64_t shards);
  ~ShardSums();
  ShardSums(const ShardSums&) = delete;
  ShardSums& operator=(const ShardSums&) = delete;

  std::int64_t shards() const { return shards_; }
  std::int64_t first() const { return first_; }  // first shard of this rank
  // The number of samples in each shard of this rank. A collective. Throws DataError if this rank's batch does not have
  // the samples of its shards.
  std::vector<std::int64_t> sizes(std::int64_t samples) const;

  void forget();  // drops what was added: the next shard begins a batch, or another pass over it
  // Called before and after each shard of this rank that has samples, in their order. Shards are numbered over all
  // ranks.
  void enter(std::int64_t shard);
  std::int64_t leave();  // returns the shard that was entered
  void finish();         // a collective, after the last shard: gives the model the gradients and buffers of all shards

 private:
  void begin();
  void restore_buffers();
  void add_up_to(std::int64_t shard);  // shards before it have no samples
  void add();

  State& state_;
  std::shared_ptr<dist::World> world_;
  std::int64_t shards_, of_rank_, first_;
  std::unique_ptr<dist::OrderedSum> sum_;    // for gradients, then for floating-point buffers
  std::vector<at::Tensor> parameters_;       // for which sum_ was made
  std::vector<at::Tensor> buffers_, begun_;  // of the model, and their values when the batch began
  std::vector<at::Tensor> largest_;          // of the other buffers
  bool begun_sum_ = false;
  std::int64_t next_ = 0;  // next shard to be added
};

}  // namespace composer
