#pragma once
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/state.h"
#include "composer/util/random_state.h"

namespace composer {

// Saves what training a batch changes beside gradients, and restores it: RNG state, and the model's buffers (running
// statistics of batch norms), both their values and what set_data() changes.
class BatchUndo {
 public:
  explicit BatchUndo(State& state);
  void restore();

 private:
  struct Saved {
    at::Tensor buffer, place, values;  // place: another handle to the memory of `buffer`
  };
  RandomState random_;
  std::vector<Saved> buffers_;
};

}  // namespace composer
