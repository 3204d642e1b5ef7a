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
  double p = 0.5;            // probability of dropping an element, >= 0 and < 1
  std::int64_t sigma = 256;  // number of masks of a layer in the whole run, >= 1
  std::int64_t tau = 16;     // number of masks in use at a time, each for a part of the batch, >= 1
};

// The samples of a batch that the model gets.
struct BatchPart {
  std::int64_t first = 0;    // number of samples before them
  std::int64_t samples = 0;  // number of samples; 0: the whole batch
  std::int64_t of = 0;       // number of samples of the whole batch; > 0 if `samples` is
};

// What the masks of a model's layers depend on. Equal numbers give equal masks.
struct GyroDropoutPosition {
  std::uint64_t seed = 0;
  std::int64_t round = 0;  // new masks are chosen when it changes
  BatchPart part = {};
};

// The number of batches between two choices of masks in a run of `batches` batches; at least 1.
COMPOSER_EXPORT std::int64_t gyro_dropout_period(std::int64_t batches, const GyroDropoutOptions& options = {});

// Drops the elements of x [N, ...] for which masks [tau, ...] have zeros, and divides the others by 1 - p. Each mask
// applies to about N / tau consecutive samples of the batch; `part` says which samples of the batch x contains. x may
// have several rows for each sample.
COMPOSER_EXPORT at::Tensor drop_by_masks(const at::Tensor& x, const at::Tensor& masks, double p,
                                         const BatchPart& part = {});

// Replaces every torch::nn::Dropout by a layer that follows `position`, which the caller updates. Throws ConfigError
// for invalid options.
COMPOSER_EXPORT Replacements gyro_dropout(torch::nn::Module& model, const GyroDropoutOptions& options,
                                          std::shared_ptr<const GyroDropoutPosition> position);

// Applies gyro_dropout() at INIT: a few subnets are trained for several batches each, instead of a new one for each
// sample. Masks are made when they are used, so only tau of them are in memory. They depend only on the trainer's seed,
// the position of the layer and the number of the batch, so a resumed run uses the same ones. A sample has the same
// mask however its batch is split into microbatches. Requires a max_duration.
class COMPOSER_EXPORT GyroDropout final : public Algorithm {
 public:
  explicit GyroDropout(GyroDropoutOptions options = {});  // throws ConfigError
  explicit GyroDropout(EmptyOptions) : GyroDropout(GyroDropoutOptions{}) {}
  ~GyroDropout() override;
  GyroDropout(GyroDropout&&) noexcept;
  GyroDropout& operator=(GyroDropout&&) noexcept;
  StateDict local_hparams() const override;
  // AFTER_FORWARD prevents CUDA graphs of a step, which would repeat the masks of their capture. Events before
  // BATCH_START are needed because another algorithm may run the model at AFTER_DATALOADER.
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
