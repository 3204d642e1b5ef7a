#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/loss_weight.h"
#include "composer/core/state.h"
#include "composer/dist/options.h"
#include "composer/step/optimizer_shards.h"
#include "composer/step/shard_sums.h"

namespace composer {

namespace dist {
class DataParallel;
class World;
}  // namespace dist

// Makes the gradients, losses and counts of a batch those of all ranks. All ranks call it alike. It is made for several
// ranks only.
class GradientSync {
 public:
  GradientSync(State& state, std::shared_ptr<dist::World> world, const dist::DistributedOptions& options);
  ~GradientSync();
  GradientSync(const GradientSync&) = delete;
  GradientSync& operator=(const GradientSync&) = delete;

  // What a rank contributes to a batch, or the sums over ranks.
  struct Counts {
    LossWeight weight = 0;  // of its part in the loss
    double counted = 0;     // where `weight` depends on the loss: what counts if that does not run
    std::int64_t samples = 0, tokens = 0, microbatches = 0;
    double seconds = 0;  // that were spent since the last batch was started; of all ranks: the mean
  };
  // With virtual shards: those of this rank that have samples, and how many; each is a microbatch. Collective.
  struct Shard {
    std::int64_t index, samples;
  };
  bool has_shards() const { return shards_.has_value(); }
  std::vector<Shard> shards(std::int64_t samples) const;

  // Before the first microbatch of each batch. `may_change`: some microbatches may turn out to have no weight.
  Counts start(const Counts& own, bool may_change);
  // The gradient of a rank's share of the loss is to be multiplied by this, because ranks are averaged.
  double factor() const { return shards_ ? 1 : static_cast<double>(size_); }
  dist::World* world() const { return size_ == 1 ? nullptr : world_.get(); }  // null: there is one rank

  // Around a virtual shard.
  void enter_shard(std::int64_t index);
  void leave_shard(std::int64_t index, const Losses& losses);
  // Around forward and backward of a microbatch. `last`: of those of this rank that have a weight.
  void before_forward(bool last);
  void before_backward(const at::Tensor& loss, bool last);
  void after_backward(bool last);
  // After the last microbatch: gradients are the mean over ranks, losses (null: not asked for) the sums. In stage 2 of
  // ZeRO, a rank then has only the gradients of its own parameters.
  void finish(Losses* batch_loss);
  // Null: every rank keeps the optimizer's state of all parameters.
  OptimizerShards* optimizer_shards() { return optimizer_ ? &*optimizer_ : nullptr; }
  // The least that a rank has; those <= 0 do not count.
  std::int64_t smallest(std::int64_t size) const;

  // Gives all ranks rank 0's buffers (parameters, too), so that they evaluate the same model.
  void share_buffers();
  void share_model();
  // Whether this rank has parameters that have not been shared yet, or others are frozen. Surgery draws values on each
  // rank, so before a batch, and before weights are compared, all ranks get those of rank 0. share_new() is for all
  // ranks if one has changes; it throws ConfigError on all if their models are not alike.
  bool has_changed();
  void share_new();

 private:
  bool syncs(bool last) const;
  void note_shared();
  void check_model(const std::vector<std::string>& lines) const;
  void sum(Losses& losses);
  void sum_shards(Losses& losses);
  void agree_on_losses(const Losses& own);
  Losses named(const at::Tensor& sums) const;

  State& state_;
  std::shared_ptr<dist::World> world_;
  dist::DistributedOptions options_;
  int size_;
  std::optional<ShardSums> shards_;
  std::optional<OptimizerShards> optimizer_;
  std::vector<std::pair<std::int64_t, Losses>> shard_losses_;  // of those of this rank
  bool by_hand_ = false;                                       // this batch: all gradients after the last microbatch
  struct Shared {
    at::Tensor parameter;
    std::vector<std::int64_t> sizes;
    bool requires_grad;
  };
  std::vector<Shared> shared_;  // parameters, as all ranks have them
  using LossName = std::pair<std::string, at::ScalarType>;
  std::vector<LossName> loss_names_;              // those of messages about losses
  bool agrees_on_losses_ = false;                 // on these names with all ranks
  bool has_other_losses_ = false;                 // this rank, in the last batch
  std::unique_ptr<dist::DataParallel> parallel_;  // of the tensors that are trained now
};

}  // namespace composer
