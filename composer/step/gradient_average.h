#pragma once
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/step/gradient_sync.h"

namespace composer {

namespace dist {
class DataParallel;
}  // namespace dist

// Ranks train their parts of a batch, and average their gradients during the last backward pass or after it.
class GradientAverage final : public GradientSync {
 public:
  GradientAverage(State& state, std::shared_ptr<dist::World> world, const dist::DistributedOptions& options);
  ~GradientAverage() override;

  std::optional<std::vector<Shard>> shards(const Feed& feed, const Batch& batch) const override;
  LossWeight share_of_gradient(const LossWeight& share) const override { return share * size_; }
  void before_forward(bool last) override;
  void before_backward(const at::Tensor& loss, bool last) override;
  void after_backward(bool last) override;
  void finish(Losses* batch_loss) override;
  DividedGradients::SumOverRanks sum_of_divided() const override;
  void agree_on_overflow(const at::Tensor& found_inf) const override;

 private:
  void begin_batch(const Unevenness& of_ranks) override;
  bool divides_gradients() const { return optimizer_ && optimizer_->divides_gradients(); }
  bool syncs(bool last) const;

  bool by_hand_ = false;                          // in this batch, all gradients are averaged after the last microbatch
  std::unique_ptr<dist::DataParallel> parallel_;  // for the tensors that are trained now
};

}  // namespace composer
