#include "composer/trainer/evaluation_forward.h"

#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <c10/core/InferenceMode.h>

#include "composer/core/error.h"
#include "composer/step/batch_undo.h"
#include "composer/util/autocast.h"

namespace composer {
namespace {

constexpr std::int64_t kBatchesWorthFolding =
    8;  // in batches: finding out what to fold costs four batches, and folding a part of one
constexpr double kTolerance = 1e-5;  // relative to the largest value of an output

// The largest difference, divided by the largest value.
double difference(const Outputs& expected, const Outputs& got) {
  double largest = 0;
  for (const auto& [name, tensor] : expected) {
    if (!tensor.is_floating_point() || tensor.numel() == 0) continue;
    const at::Tensor a = tensor.to(at::kDouble), b = got.at(name).to(at::kDouble);
    const double share = ((a - b).abs().max() / a.abs().max().clamp_min(1e-30)).item<double>();
    largest = share <= largest ? largest : share;  // also if it is NaN
  }
  return largest;
}

}  // namespace

EvaluationForward::EvaluationForward(State& state, ForwardPlan& plan, const Feed& feed, Call call)
    : state_(state),
      plan_(plan),
      call_(std::move(call)),
      folds_(plan.fold_ && feed.num_batches().value_or(kBatchesWorthFolding) >= kBatchesWorthFolding) {}

void EvaluationForward::operator()() {
  if (folds_ && plan_.watched_ != &*state_.model) watch();
  // Stays unset when it is off, because an InferenceMode(false) would turn gradients on.
  std::optional<c10::InferenceMode> inference;
  if (plan_.inference_mode_) inference.emplace();
  const AutocastScope autocast(state_.precision, state_.device);
  if (!folds_ || plan_.folding_.empty()) return plain();
  if (!folded_) folded_.emplace(plan_.folding_.fold());
  const bool right = folded_->run([this] { plain(); });
  if (right && !folded_->stale()) return;
  folds_ = false;  // the model is not the watched one, so no further batch of this evaluation is folded
  if (folded_->stale()) plan_.watched_ = nullptr;  // the next evaluation watches the current tensors
  if (!right) plain();
}

void EvaluationForward::plain() { state_.outputs = call_(*state_.model, state_.batch); }

// Compares in fp32, where outputs differ because of the weights and not because of the precision. Leaves no trace.
void EvaluationForward::watch() {
  BatchUndo undo(state_);
  plan_.watched_ = &*state_.model;
  plan_.folding_.watch([this] { plain(); });
  undo.restore();
  if (!plan_.folding_.empty() && !same_when_folded()) plan_.folding_ = {};
  undo.restore();
}

bool EvaluationForward::same_when_folded() {
  const Outputs expected = state_.outputs;
  if (!plan_.folding_.fold().run([this] { plain(); })) return false;
  const double share = difference(expected, state_.outputs);
  if (share <= kTolerance) return true;
  warn(join("fold_batch_norms: outputs would differ by ", share, " of their largest value, more than ", kTolerance,
            ", so batch norms are not folded"));
  return false;
}

}  // namespace composer
