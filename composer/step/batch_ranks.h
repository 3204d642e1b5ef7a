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

// The contribution of one rank to a batch, or the sums over ranks.
struct BatchCounts {
  LossWeight weight = 0;  // of its part in the loss
  double counted = 0;     // the weight that replaces `weight` if that depends on the loss, and the loss does not run
  std::int64_t samples = 0, tokens = 0, microbatches = 0;
  double seconds = 0;  // time since the last batch was started; over all ranks: the mean
};

// The ranks that train a batch together, as a step calls them. This class is for a single rank. GradientSync and its
// subclasses are for several; all ranks make the same calls.
class BatchRanks {
 public:
  virtual ~BatchRanks() = default;

  virtual bool alone() const { return true; }
  virtual dist::World* world() const { return nullptr; }  // null: there is one rank
  // The smallest size among ranks. Sizes <= 0 are ignored.
  virtual std::int64_t smallest(std::int64_t size) const { return size; }

  // A virtual shard of this rank that has samples, and their number. Each is a microbatch.
  struct Shard {
    std::int64_t index, samples;
  };
  // How this rank splits the batch. Unset: by the size of microbatches. Empty: this rank trains nothing of the batch.
  virtual std::optional<std::vector<Shard>> shards(const Feed&, const Batch&) const { return std::nullopt; }

  // Called before the first microbatch of each batch. `may_change`: some microbatches may turn out to have no weight.
  virtual BatchCounts start(const BatchCounts& own, bool /*may_change*/) { return own; }
  // The factor for the gradient of a microbatch whose share in the loss of the batch is `share`.
  virtual LossWeight share_of_gradient(const LossWeight& share) const { return share; }

  // Called before and after a virtual shard.
  virtual void enter_shard(std::int64_t /*index*/) {}
  virtual void leave_shard(const Losses&) {}
  // Called around forward and backward of a microbatch. `last`: it is the last one of this rank that has a weight.
  virtual void before_forward(bool /*last*/) {}
  virtual void before_backward(const at::Tensor& /*loss*/, bool /*last*/) {}
  virtual void after_backward(bool /*last*/) {}
  // Called after the last microbatch. Afterwards gradients are the mean over ranks, and `batch_loss` has the sums over
  // ranks; null: losses are not needed. In stage 2 of ZeRO, each rank then has the gradients of its own parameters
  // only.
  virtual void finish(Losses* /*batch_loss*/) {}

  // For ranks that divide gradients: sums over ranks, and whether a gradient on any rank is not finite (> 0).
  virtual DividedGradients::SumOverRanks sum_of_divided() const { return {}; }
  virtual void agree_on_overflow(const at::Tensor& /*found_inf*/) const {}
  // Called around the optimizer's step, which ranks may divide.
  virtual void before_step() {}
  virtual void after_step() {}
};

}  // namespace composer
