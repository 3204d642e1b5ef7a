#pragma once
#include "composer/core/state.h"

namespace composer {

// Warns about trainable leaves of state.loss's autograd graph that belong neither to the model, to the optimizer, nor
// to a batch, such as parameters of modules that were not registered. `whole`: the batch of which state.batch is a
// part. Leaves inside checkpoint() segments are not found.
void warn_of_outside_leaves(const State& state, const Batch& whole);

}  // namespace composer
