#pragma once
#include "composer/core/loss_weight.h"
#include "composer/core/state.h"
#include "composer/step/computation.h"
#include "composer/util/random_state.h"

namespace composer {

// Computes the microbatch that is in the state once more, as Run says of it. It leaves no trace.
class MicrobatchRepeat {
 public:
  MicrobatchRepeat(State& state, EagerComputation& computation) : state_(state), computation_(computation) {}

  void keep_random() { random_.set(state_.device); }  // before its forward pass
  // With gradients of its own, so that those of the batch stay what they are. `share`: as in Computation.
  void run(bool backward, const LossWeight& share);

 private:
  State& state_;
  EagerComputation& computation_;
  RandomMark random_;
};

}  // namespace composer
