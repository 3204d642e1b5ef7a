#pragma once
#include <memory>
#include <utility>

#include "composer/dist/options.h"
#include "composer/step/batch_ranks.h"
#include "composer/step/gradient_sync.h"

namespace composer {

class Engine;

// The ranks that train batches together. Without join(), only this one.
class JoinedRanks {
 public:
  JoinedRanks() = default;
  JoinedRanks(const JoinedRanks&) = delete;
  JoinedRanks& operator=(const JoinedRanks&) = delete;

  // From now on, batches are those of all ranks. Also used for a single rank whose batches have virtual shards.
  void join(State& state, const std::shared_ptr<dist::World>& world, const dist::DistributedOptions& options);

  // In this scope, batches are trained by this rank alone.
  class ThisRankOnly {
   public:
    explicit ThisRankOnly(JoinedRanks& ranks) : ranks_(ranks), before_(std::exchange(ranks.now_, &ranks.alone_)) {}
    ~ThisRankOnly() { ranks_.now_ = before_; }
    ThisRankOnly(const ThisRankOnly&) = delete;
    ThisRankOnly& operator=(const ThisRankOnly&) = delete;

   private:
    JoinedRanks& ranks_;
    BatchRanks* before_;
  };

  BatchRanks& operator*() const { return *now_; }  // the ranks that train now
  BatchRanks* operator->() const { return now_; }
  GradientSync* joined() const { return now_ == &alone_ ? nullptr : sync_.get(); }  // null: this rank is alone
  // Says which rank has which part of the optimizer's state; null: each rank has all of it.
  OptimizerShards* optimizer_shards() const { return sync_ ? sync_->optimizer_shards() : nullptr; }
  // Throws ConfigError for algorithms that need all gradients, if ranks have only some.
  void check_divides(const Engine& engine) const;

 private:
  BatchRanks alone_;
  std::unique_ptr<GradientSync> sync_;
  BatchRanks* now_ = &alone_;
};

}  // namespace composer
