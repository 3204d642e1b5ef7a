#pragma once
// Finds the operator of a step that was the first to produce a number that is not finite.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "composer/core/state.h"

namespace composer::nan {

struct Culprit {
  std::string text;           // sentences for an error message, one per line
  bool of_this_batch = true;  // false: the weights were not finite before this batch
  // The first rows that are not finite of a tensor [N, ...]; empty if all are, or N is 1.
  std::vector<std::int64_t> rows = {};
  std::int64_t of_rows = 0;  // N
  bool are_samples = false;  // the tensor is one of the batch, whose rows are samples
};

// `repeat` runs the step again, with its backward pass if `gradients` is set. A batch or weights that are already not
// finite are reported first.
Culprit find_culprit(const State& state, bool gradients, const std::function<void()>& repeat);

// What the run knows of the cause, as lines that are added to the message of an error.
struct Cause {
  std::string text;                   // each line begins with a line feed
  std::vector<std::int64_t> samples;  // of the microbatch, if they are known
  bool of_this_batch = true;          // as in Culprit
};
// At AFTER_LOSS, or with `gradients` at AFTER_BACKWARD, of a microbatch before whose forward pass random numbers were
// kept (Run::keep_random). Does not throw: what fails is said in the text.
Cause cause_in_run(const State& state, bool gradients);

}  // namespace composer::nan
