#pragma once
#include <functional>
#include <optional>

#include "composer/core/state.h"
#include "composer/step/feed.h"
#include "composer/util/batch_norm_folding.h"

namespace composer {

// How forward passes of evaluations and predictions run: in inference mode, and with batch norms folded into the
// convolutions before them, if asked for.
class ForwardPlan {
 public:
  ForwardPlan(bool inference_mode, bool fold) : inference_mode_(inference_mode), fold_(fold) {}

 private:
  friend class EvaluationForward;
  bool inference_mode_, fold_;
  const Model* watched_ = nullptr;  // the one that folding_ is for
  BatchNormFolding folding_;        // nothing if outputs would differ
};

// Those of one evaluation or prediction, in which the weights stay what they are.
class EvaluationForward {
 public:
  using Call = std::function<Outputs(Model& model, const Batch& batch)>;

  EvaluationForward(State& state, ForwardPlan& plan, const Feed& feed, Call call);
  void operator()();  // makes state.outputs of state.batch

 private:
  void plain();
  void watch();
  bool same_when_folded();

  State& state_;
  ForwardPlan& plan_;
  Call call_;
  bool folds_;  // if there is what can be
  std::optional<BatchNormFolding::Folded> folded_;
};

}  // namespace composer
