#pragma once
// Which operator of a step was the first to make a number that is not finite. Internal to NaNMonitor.
#include <functional>
#include <string>

#include "composer/core/state.h"

namespace composer::callbacks {

// Sentences for an error, each on a line of its own. `repeat` runs the step again, with its backward pass if
// `gradients`. What comes before is looked at first: a batch or weights that are not finite already.
std::string find_culprit(const State& state, bool gradients, const std::function<void()>& repeat);

}  // namespace composer::callbacks
