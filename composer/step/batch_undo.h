#pragma once
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/state.h"
#include "composer/util/random_state.h"

namespace composer {

// What training a batch changes beside gradients, as it was before: random numbers to come, and the model's buffers
// (running statistics of batch norms), their values and what set_data() changes.
class BatchUndo {
 public:
  explicit BatchUndo(State& state);
  void restore();

 private:
  struct Saved {
    at::Tensor buffer, place, values;  // place: another handle of what `buffer` named
  };
  RandomState random_;
  std::vector<Saved> buffers_;
};

}  // namespace composer
