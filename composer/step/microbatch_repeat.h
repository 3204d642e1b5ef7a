#pragma once
#include "composer/core/loss_weight.h"
#include "composer/core/state.h"
#include "composer/step/computation.h"
#include "composer/util/random_state.h"

namespace composer {

// Computes the microbatch in the state once more, for Run's search for NaN. It has no lasting effects.
class MicrobatchRepeat {
 public:
  MicrobatchRepeat(State& state, EagerComputation& computation) : state_(state), computation_(computation) {}

  void keep_random() { random_.set(state_.device); }  // to be called before its forward pass
  // Uses gradients of its own, so that the gradients of the batch do not change. `share`: see Computation.
  void run(bool backward, const LossWeight& share);

 private:
  State& state_;
  EagerComputation& computation_;
  RandomMark random_;
};

}  // namespace composer
