#pragma once
// Finds the operator of a step that was the first to produce a number that is not finite. Internal to NaNMonitor.
#include <functional>
#include <string>

#include "composer/core/state.h"

namespace composer::callbacks {

struct Culprit {
  std::string text;           // sentences for an error message, one per line
  bool of_this_batch = true;  // false: the weights were not finite before this batch
};

// `repeat` runs the step again, with its backward pass if `gradients` is set. A batch or weights that are already not
// finite are reported first.
Culprit find_culprit(const State& state, bool gradients, const std::function<void()>& repeat);

}  // namespace composer::callbacks
