#pragma once
#include <ATen/core/Tensor.h>

#include "composer/core/export.h"

namespace composer::optim {

// An optimizer whose step can be left out without the host knowing: what a GradScaler needs of it. Derive an optimizer
// from this beside torch::optim::Optimizer.
class COMPOSER_EXPORT SkippableStep {
 public:
  virtual ~SkippableStep();
  // As step(), but parameters and state stay as they are where found_inf, a 0-d float tensor on their device, is not 0.
  virtual void step_unless(const at::Tensor& found_inf) = 0;
};

}  // namespace composer::optim
