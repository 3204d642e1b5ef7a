#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/callback.h"
#include "composer/core/export.h"
#include "composer/core/tensors.h"
#include "composer/data/loader.h"
#include "composer/data/sum_tree.h"

namespace composer::data {

struct ReplayBufferOptions {
  std::int64_t capacity = 0;               // required: number of transitions that are kept; the oldest give way
  std::int64_t batch_size = 0;             // required: number of transitions in a batch, drawn with replacement
  std::int64_t batches_per_epoch = 0;      // 0: an epoch never ends, so durations are in ba or sp
  double alpha = 0;                        // 0: all are equally likely; otherwise in proportion to priority^alpha
  double beta = 0.4;                       // 0 to 1; with alpha > 0: how far the tensor "weight" corrects for that
  std::optional<std::uint64_t> seed = {};  // unset: the trainer's seed; 17 without a trainer
};

// Transitions of reinforcement learning, of which batches are drawn at random, with replacement. It is the loader of a
// trainer, which makes it one of its callbacks as well, so that checkpoints contain what is in it:
//
//   const auto replay = std::make_shared<data::ReplayBuffer>(data::ReplayBufferOptions{.capacity = 100'000, ...});
//   Trainer trainer({.train_dataloader = replay, ...});
//
// What is drawn depends on the seed, the position and the content alone, so a run that is resumed with the saved
// content draws the same. Batches have the tensors of the transitions, and "index", int64 [B], which names them to
// update_priorities(); with alpha > 0 also "weight", float32 [B], by which the loss of each is to be multiplied:
// (size * probability)^-beta, divided by the largest of the batch. Use it from one thread. With several ranks, each has
// a buffer of its own, and a checkpoint has that of rank 0, which all ranks of a resumed run get: fit() warns.
class COMPOSER_EXPORT ReplayBuffer final : public Loader, public Callback {
 public:
  explicit ReplayBuffer(ReplayBufferOptions options);  // throws ConfigError

  // Adds rows, which are copied to the device of the first ones. New ones get the highest priority that any has had.
  // Throws DataError for other names, types or shapes than those of the first rows.
  void push(const Batch& transitions);
  std::int64_t size() const { return size_; }

  // The batch with this number, of what there is now: for loops of your own, with state.timestamp's count of batches.
  // Throws DataError if there are no transitions.
  Batch sample(std::int64_t number) const { return drawn(0, number); }
  // Sets the priorities (errors of predictions; their absolute values count) of transitions that a batch named by its
  // "index". Throws ConfigError without alpha, DataError for an unknown index and for a priority that is not finite or
  // that alpha makes too large.
  void update_priorities(const at::Tensor& index, const at::Tensor& priorities);
  void set_beta(double beta);  // 0 to 1; not saved: compute it from the timestamp

  void seek(std::int64_t epoch, std::int64_t batch) override;
  std::optional<Batch> next() override;
  std::optional<std::int64_t> num_batches() const override;
  std::optional<std::int64_t> batch_size() const override { return options_.batch_size; }
  void set_default_seed(std::uint64_t seed) override { default_seed_ = seed; }

  StateDict local_hparams() const override;
  void fit_start(const State& state, Logger& logger) override;
  void visit_state(StateVisitor& visit) override;

 private:
  Batch drawn(std::int64_t epoch, std::int64_t number) const;
  void allocate(const Batch& rows);
  void check_fits(const Batch& rows) const;
  void restore(std::map<std::string, at::Tensor> rows, const std::vector<double>& priorities, std::int64_t old_capacity,
               const std::string& path);

  ReplayBufferOptions options_;
  double beta_;
  Batch rows_;                            // of the whole capacity; a ring
  std::int64_t size_ = 0, next_row_ = 0;  // filled rows; the row that is written next
  detail::SumTree priorities_;            // to the power of alpha
  double highest_ = 1;                    // of all priorities so far, to the power of alpha
  std::uint64_t default_seed_ = 17;
  std::int64_t epoch_ = 0, batch_ = 0;
};

}  // namespace composer::data
