#pragma once
#include <cstdint>
#include <memory>

#include <ATen/core/Tensor.h>

#include "composer/core/algorithm.h"
#include "composer/core/empty_options.h"
#include "composer/core/export.h"
#include "composer/surgery/replace.h"

namespace composer::algorithms {

struct GyroDropoutOptions {
  double p = 0.5;            // at least 0, below 1; probability that a number is dropped
  std::int64_t sigma = 256;  // >= 1; masks of a layer in the whole run
  std::int64_t tau = 16;     // >= 1; masks that are used at a time, each for a part of the batch
};

// Which samples of a batch the model is given.
struct BatchPart {
  std::int64_t first = 0;    // the number of samples before them
  std::int64_t samples = 0;  // 0: the whole batch
  std::int64_t of = 0;       // samples of the whole batch; > 0 if samples is
};

// What the layers of a model follow. Equal numbers give equal masks.
struct GyroDropoutPosition {
  std::uint64_t seed = 0;
  std::int64_t round = 0;  // masks are chosen anew when it changes
  BatchPart part = {};
};

// Batches between two choices of masks in a run of so many batches: at least 1.
COMPOSER_EXPORT std::int64_t gyro_dropout_period(std::int64_t batches, const GyroDropoutOptions& options = {});

// Drops what the masks [tau, ...] of zeros and ones say from x [N, ...], and divides the rest by 1 - p. Each mask is
// for about N / tau samples of the batch that follow each other; `part` says which of them x is. x may have several
// rows for each sample.
COMPOSER_EXPORT at::Tensor drop_by_masks(const at::Tensor& x, const at::Tensor& masks, double p,
                                         const BatchPart& part = {});

// Replaces every torch::nn::Dropout by one that follows `position`, which the caller moves. Throws ConfigError for
// invalid options.
COMPOSER_EXPORT Replacements gyro_dropout(torch::nn::Module& model, const GyroDropoutOptions& options,
                                          std::shared_ptr<const GyroDropoutPosition> position);

// Does this at INIT: a few subnets are trained for several batches each, instead of another one with each sample. Each
// mask is made when it is used, so only tau of them are in memory. Masks depend only on the trainer's seed, the place
// of the layer and the number of the batch, so a resumed run uses the same. A sample has the same mask however its
// batch is split into microbatches. Requires a max_duration.
class COMPOSER_EXPORT GyroDropout final : public Algorithm {
 public:
  explicit GyroDropout(GyroDropoutOptions options = {});  // throws ConfigError
  explicit GyroDropout(EmptyOptions) : GyroDropout(GyroDropoutOptions{}) {}
  ~GyroDropout() override;
  GyroDropout(GyroDropout&&) noexcept;
  GyroDropout& operator=(GyroDropout&&) noexcept;
  StateDict local_hparams() const override;
  // AFTER_FORWARD says that a graph of a step must not be kept: it would go on with the masks that it was made with.
  // Before BATCH_START, too: another algorithm may run the model at AFTER_DATALOADER.
  EventSet events() const override {
    return {Event::INIT,          Event::FIT_START,          Event::EPOCH_START,
            Event::BATCH_START,   Event::BEFORE_TRAIN_BATCH, Event::BEFORE_FORWARD,
            Event::AFTER_FORWARD, Event::BATCH_END};
  }
  bool match(Event event, const State& state) const override;
  void apply(Event event, State& state, Logger& logger) override;
  bool required_on_load() const override { return true; }

 private:
  class ReplaceDropout;

  GyroDropoutOptions options_;
  std::shared_ptr<GyroDropoutPosition> position_;
  std::unique_ptr<ReplaceDropout> replace_dropout_;
};

}  // namespace composer::algorithms
