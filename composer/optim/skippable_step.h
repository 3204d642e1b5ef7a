#pragma once
#include <ATen/core/Tensor.h>

#include "composer/core/export.h"

namespace composer::optim {

// An optimizer that can skip its step on the device, without involving the host; required by GradScaler. Derive such
// optimizers from this class and torch::optim::Optimizer.
class COMPOSER_EXPORT SkippableStep {
 public:
  virtual ~SkippableStep();
  // Like step(), but leaves parameters and state unchanged if found_inf, a 0-d float tensor on their device, is not 0.
  virtual void step_unless(const at::Tensor& found_inf) = 0;
};

}  // namespace composer::optim
