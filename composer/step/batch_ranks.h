#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/divided_gradients.h"
#include "composer/core/loss_weight.h"
#include "composer/core/tensors.h"
#include "composer/step/feed.h"

namespace composer {

namespace dist {
class World;
}  // namespace dist

// What one rank contributes to a batch, or the sums over ranks.
struct BatchCounts {
  LossWeight weight = 0;  // of its part in the loss
  double counted = 0;     // where `weight` depends on the loss: what counts if that does not run
  std::int64_t samples = 0, tokens = 0, microbatches = 0;
  double seconds = 0;  // that were spent since the last batch was started; of all ranks: the mean
};

// The ranks that train a batch together, as a step asks them. This is one that is alone; what derives from
// GradientSync is of several, which call all of this alike.
class BatchRanks {
 public:
  virtual ~BatchRanks() = default;

  virtual bool alone() const { return true; }
  virtual dist::World* world() const { return nullptr; }  // null: there is one rank
  // The least that a rank has; those <= 0 do not count.
  virtual std::int64_t smallest(std::int64_t size) const { return size; }

  // Virtual shards of this rank that have samples, and how many; each is a microbatch.
  struct Shard {
    std::int64_t index, samples;
  };
  // Unset: the size of microbatches says how the batch is split. Empty: this rank trains nothing of it.
  virtual std::optional<std::vector<Shard>> shards(const Feed&, const Batch&) const { return std::nullopt; }

  // Before the first microbatch of each batch. `may_change`: some microbatches may turn out to have no weight.
  virtual BatchCounts start(const BatchCounts& own, bool /*may_change*/) { return own; }
  // By which the gradient of a microbatch is to be multiplied, of what it counts in the loss of the batch.
  virtual LossWeight share_of_gradient(const LossWeight& share) const { return share; }

  // Around a virtual shard.
  virtual void enter_shard(std::int64_t /*index*/) {}
  virtual void leave_shard(const Losses&) {}
  // Around forward and backward of a microbatch. `last`: of those of this rank that have a weight.
  virtual void before_forward(bool /*last*/) {}
  virtual void before_backward(const at::Tensor& /*loss*/, bool /*last*/) {}
  virtual void after_backward(bool /*last*/) {}
  // After the last microbatch: gradients are the mean over ranks, losses (null: not asked for) the sums. In stage 2 of
  // ZeRO, a rank then has only the gradients of its own parameters.
  virtual void finish(Losses* /*batch_loss*/) {}

  // Where ranks divide gradients: what adds up over them, and whether a gradient of any rank is not finite (> 0).
  virtual DividedGradients::SumOverRanks sum_of_divided() const { return {}; }
  virtual void agree_on_overflow(const at::Tensor& /*found_inf*/) const {}
  // Around the optimizer's step, which ranks may divide.
  virtual void before_step() {}
  virtual void after_step() {}
};

}  // namespace composer
