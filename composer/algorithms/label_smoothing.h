#pragma once
#include <string>

#include <ATen/core/Tensor.h>

#include "composer/core/algorithm.h"
#include "composer/core/export.h"

namespace composer::algorithms {

struct LabelSmoothingOptions {
  double smoothing = 0.1;             // 0 to 1: the share of every target that goes to all classes alike
  std::string target_key = "target";  // in the batch: classes, or probabilities
};

// Probabilities [N, C, ...] in float32 that are `smoothing` closer to uniform than the target, which is classes [N,
// ...] or probabilities [N, C, ...] for logits [N, C, ...]. A negative class, as -100 for an ignored target, gives
// zeros, which weigh nothing in soft_cross_entropy. Throws DataError if the shapes fit neither.
COMPOSER_EXPORT at::Tensor smooth_labels(const at::Tensor& logits, const at::Tensor& target, double smoothing);

// Trains on smoothed targets: the loss gets them, the metrics get those of the batch. The model has one output, with
// classes in dimension 1, and a loss that takes probabilities. Throws ConfigError from the constructor, and at the
// first batch if the output has its classes elsewhere, as language models do.
class COMPOSER_EXPORT LabelSmoothing final : public Algorithm {
 public:
  explicit LabelSmoothing(LabelSmoothingOptions options = {});
  EventSet events() const override { return {Event::BEFORE_LOSS, Event::AFTER_LOSS}; }
  void apply(Event event, State& state, Logger& logger) override;

 private:
  LabelSmoothingOptions options_;
  at::Tensor original_;  // target, while the loss is computed
};

}  // namespace composer::algorithms
