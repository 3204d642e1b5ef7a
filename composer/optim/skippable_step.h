#pragma once
#include <ATen/core/Tensor.h>

#include "composer/core/export.h"

namespace composer::optim {

// An optimizer that can skip its step on the device, without the host being involved; required by GradScaler. Derive
// optimizers from this and torch::optim::Optimizer.
class COMPOSER_EXPORT SkippableStep {
 public:
  virtual ~SkippableStep();
  // As step(), but leaves parameters and state unchanged if found_inf, a 0-d float tensor on their device, is not 0.
  virtual void step_unless(const at::Tensor& found_inf) = 0;
};

}  // namespace composer::optim
