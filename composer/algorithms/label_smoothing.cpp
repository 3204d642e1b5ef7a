#include "composer/algorithms/label_smoothing.h"

#include <utility>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/core/state.h"
#include "composer/util/loss.h"

namespace composer::algorithms {

at::Tensor smooth_labels(const at::Tensor& logits, const at::Tensor& target, double smoothing) {
  const auto classes = static_cast<double>(logits.size(1));
  return ensure_targets_one_hot(logits, target).to(at::kFloat).mul(1 - smoothing).add_(smoothing / classes);
}

LabelSmoothing::LabelSmoothing(LabelSmoothingOptions options) : options_(std::move(options)) {
  if (!(options_.smoothing >= 0 && options_.smoothing <= 1))
    throw ConfigError("LabelSmoothing: smoothing must be from 0 to 1, got ", options_.smoothing);
  if (options_.target_key.empty()) throw ConfigError("LabelSmoothing: target_key must not be empty");
}

void LabelSmoothing::apply(Event event, State& state, Logger&) {
  const auto& [smoothing, target_key] = options_;
  if (event == Event::BEFORE_LOSS) {
    original_ = state.batch.at(target_key);
    state.batch.set(target_key, smooth_labels(state.outputs.only(), original_, smoothing));
  } else {
    state.batch.set(target_key, std::exchange(original_, {}));
  }
}

}  // namespace composer::algorithms
