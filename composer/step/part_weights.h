#pragma once
#include <cstdint>

#include "composer/core/loss_weight.h"
#include "composer/core/state.h"
#include "composer/step/batch_rules.h"

namespace composer {

// What each part of a batch, a microbatch or the slice of a rank, counts in its loss: what the loss is a mean over. A
// DataSpec that counts tokens for this says it, else the model, else the samples are counted.
class PartWeights {
 public:
  PartWeights(const State& state, bool by_tokens) : state_(state), by_tokens_(by_tokens) {}

  void begin_fit() { first_batch_ = weighs_kinds_ = true; }

  // Before algorithms and microbatch_transforms change the part. `alone`: the batch has no other part, on any rank.
  LossWeight of(const BatchRules& rules, const Batch& part, bool alone);
  // Of the same part, where its weight depends on the loss: what counts if that does not run. Else 0.
  double counted_instead(const BatchRules& rules, const Batch& part, const LossWeight& weight) const {
    return weight.depends_on_loss() ? counted(rules, part) : 0;
  }
  // After transforms, which may drop samples or tokens. What the model has said is kept: the whole was known before,
  // and on a device it would be counted anew in each step.
  LossWeight of_transformed(const BatchRules& rules, const Batch& part, const LossWeight& before) const;
  // Of what the loss was computed from, if algorithms can change that: they make probabilities of classes.
  LossWeight of_loss(const Batch& part, const LossWeight& before) const;

  // Once all parts are known. Throws DataError if a batch cannot be weighed. Warns of ignored targets of which the
  // model has not told: where weights depend on the loss, check_loss() does.
  void check(const LossWeight& whole, const Batch& batch, bool has_parts, bool alone, std::int64_t tokens);
  // Once the loss of a part has run, on which its weight depends. `told`: it is the loss that the model has told of.
  void check_loss(bool told, const LossWeight& weight, const LossWeight& whole, const Batch& batch, bool alone);
  // Once the batch has run without an error, which says more: warns of the first one without any weight.
  void warn_of_nothing();

 private:
  double counted(const BatchRules& rules, const Batch& part) const;
  LossWeight said(const Batch& part);
  void note_nothing();
  void warn_of_ignored(const Batch& batch) const;

  const State& state_;
  bool by_tokens_;
  bool by_model_ = false;     // the parts of this batch
  bool by_loss_ = false;      // likewise: what the model says depends on the loss
  bool weighs_kinds_ = true;  // what the model says may depend on what algorithms make of targets
  bool first_batch_ = false;  // of a fit
  enum class Nothing : std::uint8_t { UNSEEN, SEEN, TOLD } nothing_ = Nothing::UNSEEN;  // a batch without targets
};

}  // namespace composer
