#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/loss_weight.h"
#include "composer/core/state.h"
#include "composer/dist/options.h"
#include "composer/step/batch_ranks.h"
#include "composer/step/loss_sums.h"
#include "composer/step/optimizer_shards.h"
#include "composer/step/shard_sums.h"
#include "composer/step/shared_model.h"

namespace composer {

namespace dist {
class DataParallel;
class World;
}  // namespace dist

// Makes the gradients, losses and counts of a batch those of all ranks. It is made for several ranks, or for one whose
// batches have virtual shards.
class GradientSync final : public BatchRanks {
 public:
  GradientSync(State& state, std::shared_ptr<dist::World> world, const dist::DistributedOptions& options);
  ~GradientSync() override;
  GradientSync(const GradientSync&) = delete;
  GradientSync& operator=(const GradientSync&) = delete;

  bool alone() const override { return false; }
  dist::World* world() const override { return size_ == 1 ? nullptr : world_.get(); }
  std::int64_t smallest(std::int64_t size) const override;
  std::optional<std::vector<Shard>> shards(const Feed& feed, const Batch& batch) const override;
  BatchCounts start(const BatchCounts& own, bool may_change) override;
  LossWeight share_of_gradient(const LossWeight& share) const override;
  void enter_shard(std::int64_t index) override;
  void leave_shard(const Losses& losses) override;
  void before_forward(bool last) override;
  void before_backward(const at::Tensor& loss, bool last) override;
  void after_backward(bool last) override;
  void finish(Losses* batch_loss) override;
  DividedGradients::SumOverRanks sum_of_divided() const override;
  void agree_on_overflow(const at::Tensor& found_inf) const override;
  void before_step() override;
  void after_step() override;

  // Null: every rank keeps the optimizer's state of all parameters.
  OptimizerShards* optimizer_shards() { return optimizer_.get(); }
  SharedModel& model() { return model_; }

 private:
  bool divides_gradients() const { return optimizer_ && optimizer_->divides_gradients(); }
  bool syncs(bool last) const;

  State& state_;
  std::shared_ptr<dist::World> world_;
  dist::DistributedOptions options_;
  int size_;
  std::optional<ShardSums> shards_;
  std::unique_ptr<OptimizerShards> optimizer_;
  SharedModel model_;
  LossSums losses_;
  std::vector<LossSums::OfShard> shard_losses_;   // of those of this rank
  bool by_hand_ = false;                          // this batch: all gradients after the last microbatch
  std::unique_ptr<dist::DataParallel> parallel_;  // of the tensors that are trained now
};

}  // namespace composer
