#include "composer/algorithms/label_smoothing.h"

#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/state.h"
#include "composer/util/loss.h"

namespace composer::algorithms {

namespace {

// Smooths classes [N, ...] on the host, in one pass. Rounds like the operators below.
at::Tensor smooth_classes(const at::Tensor& logits, const at::Tensor& target, double smoothing) {
  const std::int64_t classes = logits.size(1), inner = logits.numel() / logits.size(0) / classes;
  const auto others = static_cast<float>(smoothing / static_cast<double>(classes));
  const float own = static_cast<float>(1 - smoothing) + others;
  at::Tensor smoothed = at::full(logits.sizes(), others, at::kFloat);
  const at::Tensor indices = target.to(at::kLong).contiguous();
  const auto* const from = indices.const_data_ptr<std::int64_t>();
  auto* const to = smoothed.mutable_data_ptr<float>();
  for (std::int64_t i = 0; i < indices.numel(); ++i) {
    const std::int64_t sample = i / inner, own_class = from[i];
    if (own_class >= classes)
      throw DataError("class ", own_class, " of sample ", sample, " is out of range; classes are 0 to ", classes - 1);
    float* const first = to + sample * classes * inner + i % inner;
    if (own_class >= 0) {
      first[own_class * inner] = own;
    } else {
      for (std::int64_t c = 0; c < classes; ++c) first[c * inner] = 0;
    }
  }
  return smoothed;
}

std::vector<Option<LabelSmoothingOptions>> label_smoothing_options() {
  using O = LabelSmoothingOptions;
  return all_options(option("smoothing", &O::smoothing).from_to(0, 1),
                     option("target_key", &O::target_key).not_empty());
}

}  // namespace

at::Tensor smooth_labels(const at::Tensor& logits, const at::Tensor& target, double smoothing) {
  const bool on_host = logits.is_cpu() && target.is_cpu() && logits.numel() > 0;
  if (on_host && target_kind(logits, target) == TargetKind::INDICES &&
      at::isIntegralType(target.scalar_type(), /*includeBool=*/false))
    return smooth_classes(logits, target, smoothing);
  const auto classes = static_cast<double>(logits.size(1));
  const at::Tensor probabilities = ensure_targets_one_hot(logits, target).to(at::kFloat);
  // Spreads over all classes only what a row has: the row of an ignored target is zero.
  return probabilities.mul(1 - smoothing).add_(probabilities.sum(1, /*keepdim=*/true), smoothing / classes);
}

LabelSmoothing::LabelSmoothing(LabelSmoothingOptions options)
    : options_(checked("LabelSmoothing", std::move(options), label_smoothing_options())) {}

void LabelSmoothing::apply(Event event, State& state, Logger&) {
  const auto& [smoothing, target_key] = options_;
  if (event == Event::BEFORE_LOSS) {
    const at::Tensor& output = state.outputs.only();
    const at::Tensor& target = state.batch.at(target_key);
    if (output.dim() < 2 || output.size(1) < 2 || !find_target_kind(output, target))
      throw ConfigError(
          "LabelSmoothing: needs outputs [N, C, ...] with two or more classes in dimension 1; the output is ",
          output.sizes(), ", \"", target_key, "\" is ", target.sizes(),
          ". For a language model, smooth the targets in its loss instead: set label_smoothing of "
          "at::cross_entropy_loss or GptOptions");
    original_ = target;
    smoothed_ = smooth_labels(output, original_, smoothing);
    state.batch.set(target_key, smoothed_);
  } else {
    const at::Tensor original = std::exchange(original_, {}), smoothed = std::exchange(smoothed_, {});
    if (state.batch.at(target_key).is_same(smoothed)) state.batch.set(target_key, original);
  }
}

StateDict LabelSmoothing::local_hparams() const { return describe(options_, label_smoothing_options()); }

namespace entries {

Entry<Algorithms> label_smoothing() {
  return entry<LabelSmoothing>("label_smoothing", "Trains on targets that are a little uncertain",
                               label_smoothing_options());
}

}  // namespace entries
}  // namespace composer::algorithms
