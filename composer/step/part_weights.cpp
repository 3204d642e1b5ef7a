#include "composer/step/part_weights.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <ATen/core/Tensor.h>

#include "composer/core/error.h"
#include "composer/core/model_access.h"

namespace composer {
namespace {

bool is_on_host(const Batch& batch) {
  return std::ranges::all_of(batch, [](const auto& item) { return item.second.is_cpu(); });
}

void check_number(const LossWeight& weight) {
  if (weight.known() && !weight.is_on_device() && !(weight.number() >= 0 && std::isfinite(weight.number())))
    throw DataError("Model::loss_weight: must be finite and >= 0, got ", weight.number());
}

}  // namespace

double PartWeights::counted(const BatchRules& rules, const Batch& part) const {
  return static_cast<double>(by_tokens_ ? rules.count_tokens(part).loss_generating : rules.count_samples(part));
}

LossWeight PartWeights::said(const Batch& part) {
  LossWeight weight = loss_weight_of(*state_.model, part);
  weighs_kinds_ = weight.depends_on_kind();
  if (!weight.depends_on_loss()) check_number(weight);
  return weight;
}

// If the part is the only one, its share is 1 whatever its weight. The model is then not asked where that would launch
// kernels in each step.
LossWeight PartWeights::of(const BatchRules& rules, const Batch& part, bool alone) {
  const bool asks = !(by_tokens_ && rules.has_token_count()) && (!alone || weighs_kinds_ || is_on_host(part));
  const LossWeight weight = asks ? said(part) : LossWeight();
  by_model_ = weight.known();
  by_loss_ = weight.depends_on_loss();
  return by_model_ ? weight : counted(rules, part);
}

LossWeight PartWeights::of_transformed(const BatchRules& rules, const Batch& part, const LossWeight& before) const {
  return by_model_ ? before : counted(rules, part);
}

LossWeight PartWeights::of_loss(const Batch& part, const LossWeight& before) const {
  return before.depends_on_kind() ? loss_weight_of(*state_.model, part) : before;
}

void PartWeights::check(const LossWeight& whole, const Batch& batch, bool has_parts, bool alone, std::int64_t tokens) {
  if (nothing_ == Nothing::SEEN) nothing_ = Nothing::UNSEEN;  // noted in a batch that an error has ended
  if (by_loss_) return;
  if (std::exchange(first_batch_, false) && !by_model_ && !by_tokens_ && !alone) warn_of_ignored(batch);
  if (!whole.is(0)) return;
  if (has_parts && !by_model_ && !(by_tokens_ && tokens > 0))
    throw DataError("the batch has no ", by_tokens_ ? "loss-generating tokens" : "samples", " to weigh it by");
  note_zero_weight();
}

void PartWeights::check_loss(bool told, const LossWeight& weight, const LossWeight& whole, const Batch& batch,
                             bool alone) {
  const bool first = std::exchange(first_batch_, false);
  if (!told) {
    if (first && !by_tokens_ && !alone) warn_of_ignored(batch);
    return;
  }
  check_number(weight);
  if (whole.is(0)) note_zero_weight();
}

void PartWeights::note_zero_weight() {
  if (state_.run && nothing_ == Nothing::UNSEEN) nothing_ = Nothing::SEEN;
}

void PartWeights::warn_of_zero_weight() {
  if (nothing_ != Nothing::SEEN) return;
  nothing_ = Nothing::TOLD;
  warn(join("batch ", state_.timestamp.batch, " has no target that counts, so its loss is 0 and it trains nothing"));
}

void PartWeights::warn_of_ignored(const Batch& batch) const {
  if (!state_.run) return;  // a trial does not warn
  for (const auto& [name, tensor] : batch) {
    if (name.starts_with("input") || !tensor.is_cpu() || tensor.scalar_type() != at::kLong) continue;
    if (!tensor.lt(0).any().item<bool>()) continue;
    warn(join("model: \"", name, "\" has negative numbers, and a batch is trained in parts that are weighed by their ",
              "samples; if the loss ignores such targets, let Model::loss_weight return target_weight(batch[\"", name,
              "\"]), so that the parts give the gradient of the whole batch"));
  }
}

}  // namespace composer
