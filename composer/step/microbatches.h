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

// The parts of a batch that are trained one after the other, and what each counts in the loss of the batch: its share
// of what that is a mean over (Model::loss_weight, else the samples, or the loss-generating tokens that a DataSpec
// counts). The gradient is then that of the whole batch, however it is split.
class Microbatches {
 public:
  Microbatches(State& state, bool weigh_by_tokens) : state_(state), weights_(state, weigh_by_tokens) {}

  void begin_fit() { weights_.begin_fit(); }

  // state.batch is a whole batch, of which parts are trained from now on.
  void take_batch() { whole_ = state_.batch; }
  // Splits the batch into parts of state.device_train_microbatch_size samples, or into the shards that ranks ask for.
  void split(const Feed& feed, BatchRanks& ranks);
  // Weighs the parts, once, however often they are trained. `spent`: since the last batch was weighed, of which ranks
  // tell each other.
  void weigh(const Feed& feed, BatchRanks& ranks, Seconds spent = {});
  bool are_weighed() const { return of_all_.weight.known(); }
  const BatchCounts& of_all_ranks() const { return of_all_; }

  std::size_t size() const { return parts_.size(); }
  const Batch& whole() const { return whole_; }
  std::int64_t samples_at_once() const { return samples_at_once_; }  // those of the loader's batches, if not split
  // state.batch becomes that part, on the device. Parts that are not weighed yet are weighed before.
  void enter(const Feed& feed, BatchRanks& ranks, std::size_t index);
  // The same of a part that is tried as if it were half of the batch, the first half or the second.
  void enter_trial(const Feed& feed, const Batch& part, bool first);
  void leave();   // state.batch is the whole batch again, which has run without an error
  void forget();  // what is kept of the batch

  // Of the part that was entered last.
  const LossWeight& share() const { return share_; }
  bool counts() const { return !share_.is(0); }
  bool is_first() const { return is_first_; }
  bool is_last() const { return index_ == last_; }  // of those that have a weight
  std::vector<std::int64_t> sample_indices(const Feed& feed) const;
  // Around the computation of state.loss, which may tell the weight.
  std::uint64_t runs_of_loss() const { return weight_.runs(); }
  void weigh_loss(std::uint64_t runs_before);
  void zero_loss_without_weight() const;  // a mean over nothing may be 0/0

 private:
  struct Part {
    Batch batch;  // empty if the whole batch is the only one
    LossWeight weight = {};
    double counted = 0;  // instead, if the loss that this is the weight of does not run
    bool first = true;   // of those whose losses are added up
    std::int64_t shard = 0;
  };

  const Batch& batch_of(const Part& part) const { return is_split_ ? part.batch : whole_; }
  void put(const Feed& feed, const Batch& part, bool first);
  void stop_gradients_of_nothing() const;

  State& state_;
  PartWeights weights_;
  Batch whole_;  // as it came from the loader
  std::vector<Part> parts_;
  std::int64_t samples_at_once_ = 0;
  bool is_split_ = false;
  bool is_alone_ = true;  // there is one part, on one rank
  BatchCounts of_all_;    // before algorithms and transforms of parts
  std::size_t index_ = 0, last_ = 0;
  bool is_first_ = true;
  LossWeight weight_;   // of this part; unknown: it is a trial
  double counted_ = 0;  // as that of parts
  LossWeight share_ = 1;
};

}  // namespace composer
