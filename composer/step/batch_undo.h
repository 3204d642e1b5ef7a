#pragma once
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/state.h"
#include "composer/util/random_state.h"

namespace composer {

// What training a batch changes beside gradients, as it was before: random numbers to come, and the model's buffers
// (running statistics of batch norms).
class BatchUndo {
 public:
  explicit BatchUndo(State& state);
  void restore();

 private:
  RandomState random_;
  std::vector<at::Tensor> buffers_, copies_;
};

}  // namespace composer
