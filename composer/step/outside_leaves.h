#pragma once
#include "composer/core/state.h"

namespace composer {

// Warns of leaves of state.loss's autograd graph that are trainable and belong neither to the model, to the optimizer,
// nor to a batch: parameters of modules that were not registered, for example. `whole`: the batch of which state.batch
// is a part. What runs inside of checkpoint() is not in the graph.
void warn_of_outside_leaves(const State& state, const Batch& whole);

}  // namespace composer
