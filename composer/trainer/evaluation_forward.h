#pragma once
#include <functional>
#include <optional>

#include "composer/core/state.h"
#include "composer/step/feed.h"
#include "composer/util/batch_norm_folding.h"

namespace composer {

// How the forward passes of evaluations and predictions run: in inference mode if that is on, and with batch norms
// folded into the convolutions before them if the options say so.
class ForwardPlan {
 public:
  ForwardPlan(bool inference_mode, bool fold) : inference_mode_(inference_mode), fold_(fold) {}

 private:
  friend class EvaluationForward;
  bool inference_mode_, fold_;
  const Model* watched_ = nullptr;  // the model that folding_ belongs to
  BatchNormFolding folding_;        // empty if folding would change the outputs
};

// The forward passes of one evaluation or prediction, during which the weights do not change.
class EvaluationForward {
 public:
  using Call = std::function<Outputs(Model& model, const Batch& batch)>;

  EvaluationForward(State& state, ForwardPlan& plan, const Feed& feed, Call call);
  void operator()();  // computes state.outputs from state.batch

 private:
  void plain();
  void watch();
  bool same_when_folded();

  State& state_;
  ForwardPlan& plan_;
  Call call_;
  bool folds_;  // whether there is something to fold
  std::optional<BatchNormFolding::Folded> folded_;
};

}  // namespace composer
