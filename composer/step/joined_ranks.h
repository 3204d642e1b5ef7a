#pragma once
#include <memory>
#include <utility>

#include "composer/dist/options.h"
#include "composer/step/batch_ranks.h"
#include "composer/step/gradient_sync.h"

namespace composer {

class Engine;

// The ranks that train batches together: this one alone, until it joins others.
class JoinedRanks {
 public:
  JoinedRanks() = default;
  JoinedRanks(const JoinedRanks&) = delete;
  JoinedRanks& operator=(const JoinedRanks&) = delete;

  // Batches are those of all ranks, from now on. Also of one rank, whose batches have virtual shards.
  void join(State& state, const std::shared_ptr<dist::World>& world, const dist::DistributedOptions& options);

  // Within this scope batches are this rank's alone.
  class Apart {
   public:
    explicit Apart(JoinedRanks& ranks) : ranks_(ranks), before_(std::exchange(ranks.now_, &ranks.alone_)) {}
    ~Apart() { ranks_.now_ = before_; }
    Apart(const Apart&) = delete;
    Apart& operator=(const Apart&) = delete;

   private:
    JoinedRanks& ranks_;
    BatchRanks* before_;
  };

  BatchRanks& operator*() const { return *now_; }  // those that train now
  BatchRanks* operator->() const { return now_; }
  GradientSync* joined() const { return now_ == &alone_ ? nullptr : sync_.get(); }  // null: this one is alone
  // Of which rank has what of the optimizer; null: each has all.
  OptimizerShards* optimizer_shards() const { return sync_ ? sync_->optimizer_shards() : nullptr; }
  // Throws ConfigError for algorithms that need all gradients, where a rank has only some.
  void check_divides(const Engine& engine) const;

 private:
  BatchRanks alone_;
  std::unique_ptr<GradientSync> sync_;
  BatchRanks* now_ = &alone_;
};

}  // namespace composer
