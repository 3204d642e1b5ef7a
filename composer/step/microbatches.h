#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "composer/core/loss_weight.h"
#include "composer/core/state.h"
#include "composer/core/time.h"
#include "composer/step/batch_ranks.h"
#include "composer/step/feed.h"
#include "composer/step/part_weights.h"

namespace composer {

// The parts of a batch that are trained one after the other, and the share of each in the loss of the batch. Shares are
// measured in what the loss is a mean over: Model::loss_weight, else the samples, or the loss-generating tokens that a
// DataSpec counts. The gradient is then that of the whole batch, however it is split.
class Microbatches {
 public:
  Microbatches(State& state, bool weigh_by_tokens) : state_(state), weights_(state, weigh_by_tokens) {}

  void begin_fit() { weights_.begin_fit(); }

  // Takes state.batch as the whole batch, whose parts are trained from now on.
  void take_batch() { whole_ = state_.batch; }
  // Splits the batch into parts of state.device_train_microbatch_size samples, or into the shards of the ranks.
  void split(const Feed& feed, BatchRanks& ranks);
  // Weighs the parts, once per batch, however often they are trained. `spent`: time since the last batch was weighed;
  // the mean over ranks is in of_all_ranks().
  void weigh(const Feed& feed, BatchRanks& ranks, Seconds spent = {});
  bool are_weighed() const { return of_all_.weight.known(); }
  const BatchCounts& of_all_ranks() const { return of_all_; }

  std::size_t size() const { return parts_.size(); }
  const Batch& whole() const { return whole_; }
  // If the batch is not split: samples in the loader's batches.
  std::int64_t samples_at_once() const { return samples_at_once_; }
  // Makes the part state.batch, on the device. Weighs the parts first if they are not weighed yet.
  void enter(const Feed& feed, BatchRanks& ranks, std::size_t index);
  // Like enter(), for a part that is tried as one half of the batch, the first or the second.
  void enter_trial(const Feed& feed, const Batch& part, bool first);
  void leave();   // after all parts without an error: makes the whole batch state.batch again
  void forget();  // drops the batch and its parts

  // Properties of the part that was entered last.
  const LossWeight& share() const { return share_; }
  bool counts() const { return !share_.is(0); }
  bool is_first() const { return is_first_; }
  bool is_last() const { return index_ == last_; }  // among parts that have a weight
  std::vector<std::int64_t> sample_indices(const Feed& feed) const;
  // Called before and after the computation of state.loss, which may determine the weight.
  std::uint64_t runs_of_loss() const { return weight_.runs(); }
  void weigh_loss(std::uint64_t runs_before);
  void zero_loss_without_weight() const;  // a mean over nothing may be 0/0

 private:
  struct Part {
    Batch batch;  // empty if the whole batch is the only one
    LossWeight weight = {};
    double counted = 0;  // replaces `weight` if that depends on a loss that does not run
    bool first = true;   // among the parts whose losses are added up
    std::int64_t shard = 0;
  };

  const Batch& batch_of(const Part& part) const { return is_split_ ? part.batch : whole_; }
  void put(const Feed& feed, const Batch& part, bool first);
  void stop_gradients_without_weight() const;

  State& state_;
  PartWeights weights_;
  Batch whole_;  // as it came from the loader
  std::vector<Part> parts_;
  std::int64_t samples_at_once_ = 0;
  bool is_split_ = false;
  bool is_alone_ = true;  // whether there is one part, on one rank
  BatchCounts of_all_;    // before algorithms and transforms of parts
  std::size_t index_ = 0, last_ = 0;
  bool is_first_ = true;
  LossWeight weight_;   // of this part; unknown in a trial
  double counted_ = 0;  // of this part, like Part::counted
  LossWeight share_ = 1;
};

}  // namespace composer
