#pragma once
// Which operator of a step was the first to make a number that is not finite. Internal to NaNMonitor.
#include <functional>
#include <string>

#include "composer/core/state.h"

namespace composer::callbacks {

struct Culprit {
  std::string text;           // sentences for an error, each on a line of its own
  bool of_this_batch = true;  // false: the weights were not finite before it
};

// `repeat` runs the step again, with its backward pass if `gradients`. What comes before is looked at first: a batch or
// weights that are not finite already.
Culprit find_culprit(const State& state, bool gradients, const std::function<void()>& repeat);

}  // namespace composer::callbacks
