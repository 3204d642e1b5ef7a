#include "composer/algorithms/label_smoothing.h"

#include <utility>

#include <ATen/ATen.h>

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/state.h"
#include "composer/util/loss.h"

namespace composer::algorithms {

namespace {

// Of classes [N, ...] on the host, in one pass. Rounds as the operators below do.
at::Tensor smooth_classes(const at::Tensor& logits, const at::Tensor& target, double smoothing) {
  const std::int64_t classes = logits.size(1), inner = logits.numel() / logits.size(0) / classes;
  const auto others = static_cast<float>(smoothing / static_cast<double>(classes));
  const float own = static_cast<float>(1 - smoothing) + others;
  at::Tensor smoothed = at::full(logits.sizes(), others, at::kFloat);
  const at::Tensor indices = target.to(at::kLong).contiguous();
  const auto* const from = indices.const_data_ptr<std::int64_t>();
  auto* const to = smoothed.mutable_data_ptr<float>();
  for (std::int64_t i = 0; i < indices.numel(); ++i) {
    if (from[i] >= classes) throw DataError("a target's class is ", from[i], "; the last one is ", classes - 1);
    if (from[i] >= 0) to[(i / inner * classes + from[i]) * inner + i % inner] = own;
  }
  return smoothed;
}

}  // namespace

at::Tensor smooth_labels(const at::Tensor& logits, const at::Tensor& target, double smoothing) {
  const bool on_host = logits.is_cpu() && target.is_cpu() && logits.numel() > 0;
  if (on_host && target_kind(logits, target) == TargetKind::INDICES &&
      at::isIntegralType(target.scalar_type(), /*includeBool=*/false))
    return smooth_classes(logits, target, smoothing);
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

namespace entries {

Entry<Algorithms> label_smoothing() {
  using O = LabelSmoothingOptions;
  return entry<LabelSmoothing, O>("label_smoothing", "Trains on targets that are a little uncertain",
                                  {option("smoothing", &O::smoothing).refuses({"-0.1", "1.1", "inf"}),
                                   option("target_key", &O::target_key).refuses({""})});
}

}  // namespace entries
}  // namespace composer::algorithms
