#pragma once
#include <cstdint>
#include <memory>

#include <ATen/core/Tensor.h>

#include "composer/core/loss_weight.h"
#include "composer/core/state.h"
#include "composer/dist/options.h"
#include "composer/step/batch_ranks.h"
#include "composer/step/loss_sums.h"
#include "composer/step/optimizer_shards.h"
#include "composer/step/shared_model.h"

namespace composer {

namespace dist {
class World;
}  // namespace dist

// Makes the counts of a batch, the model and the optimizer's step the same on all ranks. The subclasses GradientAverage
// and VirtualShards do so for gradients and losses.
class GradientSync : public BatchRanks {
 public:
  GradientSync(State& state, std::shared_ptr<dist::World> world, const dist::DistributedOptions& options);
  GradientSync(const GradientSync&) = delete;
  GradientSync& operator=(const GradientSync&) = delete;

  bool alone() const override { return false; }
  dist::World* world() const override { return size_ == 1 ? nullptr : world_.get(); }
  std::int64_t smallest(std::int64_t size) const override;
  BatchCounts start(const BatchCounts& own, bool may_change) override;
  void before_step() override;
  void after_step() override;

  // Null if every rank keeps the optimizer's state of all parameters.
  OptimizerShards* optimizer_shards() { return optimizer_.get(); }
  SharedModel& model() { return model_; }

 protected:
  // How the microbatches of a batch differ between ranks. `may_lack_weight`: some rank has nothing to train, or may
  // turn out to have nothing. `numbers_differ`: their numbers differ.
  struct Unevenness {
    bool may_lack_weight = false, numbers_differ = false;
  };
  virtual void begin_batch(const Unevenness& of_ranks) = 0;

  State& state_;
  std::shared_ptr<dist::World> world_;
  dist::DistributedOptions options_;
  int size_;
  std::unique_ptr<OptimizerShards> optimizer_;
  SharedModel model_;
  LossSums losses_;
};

}  // namespace composer
