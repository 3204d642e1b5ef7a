#pragma once
#include <cstdint>

#include "composer/core/loss_weight.h"
#include "composer/core/state.h"
#include "composer/step/batch_rules.h"

namespace composer {

// The weight of each part of a batch, a microbatch or the slice of a rank, in the batch's loss, which is a mean over
// weights. It is the tokens that a DataSpec counts for this, else what the model returns, else the number of samples.
class PartWeights {
 public:
  PartWeights(const State& state, bool by_tokens) : state_(state), by_tokens_(by_tokens) {}

  void begin_fit() { first_batch_ = weighs_kinds_ = true; }

  // Called before algorithms and microbatch_transforms change the part. `alone`: the batch has no other part, on any
  // rank.
  LossWeight of(const BatchRules& rules, const Batch& part, bool alone);
  // The weight that replaces `weight`, if that depends on the loss, and the loss does not run. 0 if `weight` does not
  // depend on the loss.
  double counted_instead(const BatchRules& rules, const Batch& part, const LossWeight& weight) const {
    return weight.depends_on_loss() ? counted(rules, part) : 0;
  }
  // Called after transforms, which may drop samples or tokens. A weight from the model is kept: the weight of the whole
  // is known already, and on a device each step would count again.
  LossWeight of_transformed(const BatchRules& rules, const Batch& part, const LossWeight& before) const;
  // The weight for the targets that the loss was computed from, which algorithms may have changed into probabilities of
  // classes.
  LossWeight of_loss(const Batch& part, const LossWeight& before) const;

  // Called once all parts are known. Throws DataError if a batch cannot be weighed. Warns about ignored targets, unless
  // the model returns weights; where weights depend on the loss, check_loss() does so.
  void check(const LossWeight& whole, const Batch& batch, bool has_parts, bool alone, std::int64_t tokens);
  // Called once the loss of a part has run, on which its weight depends. `told`: it is the loss for which the model has
  // stated the weight.
  void check_loss(bool told, const LossWeight& weight, const LossWeight& whole, const Batch& batch, bool alone);
  // Called once the batch has run without an error. Warns about the first batch without any weight.
  void warn_of_zero_weight();

 private:
  double counted(const BatchRules& rules, const Batch& part) const;
  LossWeight said(const Batch& part);
  void note_zero_weight();
  void warn_of_ignored(const Batch& batch) const;

  const State& state_;
  bool by_tokens_;
  bool by_model_ = false;     // the model weighs the parts of this batch
  bool by_loss_ = false;      // the weights of this batch depend on the loss
  bool weighs_kinds_ = true;  // the model's weights may depend on what algorithms make of targets
  bool first_batch_ = false;  // of a fit
  enum class Nothing : std::uint8_t { UNSEEN, SEEN, TOLD } nothing_ = Nothing::UNSEEN;  // a batch without targets
};

}  // namespace composer
