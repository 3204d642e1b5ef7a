#pragma once
#include <string>

#include <ATen/core/Tensor.h>

#include "composer/core/algorithm.h"
#include "composer/core/empty_options.h"
#include "composer/core/export.h"

namespace composer::algorithms {

struct LabelSmoothingOptions {
  double smoothing = 0.1;             // fraction of each target that is spread evenly over all classes, 0 to 1
  std::string target_key = "target";  // name of the targets in the batch: classes [N, ...] or probabilities [N, C, ...]
};

// Returns float32 probabilities [N, C, ...]: (1 - smoothing) * target + smoothing / C. The target is classes [N, ...]
// or probabilities [N, C, ...] for logits [N, C, ...]. A negative class, such as -100 for an ignored target, gives
// zeros, which do not contribute to soft_cross_entropy. Throws DataError if the shapes fit neither.
COMPOSER_EXPORT at::Tensor smooth_labels(const at::Tensor& logits, const at::Tensor& target, double smoothing);

// Trains on smoothed targets: the loss gets them, while metrics get the targets of the batch. Requires a model with one
// output, with classes in dimension 1, and a loss that accepts probabilities. Throws ConfigError from the constructor,
// and at the first batch if classes are in another dimension, as in language models.
class COMPOSER_EXPORT LabelSmoothing final : public Algorithm {
 public:
  explicit LabelSmoothing(LabelSmoothingOptions options = {});
  explicit LabelSmoothing(EmptyOptions) : LabelSmoothing() {}
  StateDict local_hparams() const override;
  EventSet events() const override { return {Event::BEFORE_LOSS, Event::AFTER_LOSS}; }
  void apply(Event event, State& state, Logger& logger) override;
  // Runs last, so that it smooths the targets as other algorithms have changed them, and restores those after the loss.
  Placement placement() const override { return Placement::LAST; }

 private:
  LabelSmoothingOptions options_;
  at::Tensor original_, smoothed_;  // set while the loss is computed
};

}  // namespace composer::algorithms
