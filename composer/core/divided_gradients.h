#pragma once
#include <functional>

#include <ATen/core/Tensor.h>

#include "composer/core/export.h"

namespace composer {

// An algorithm that changes gradients derives from this as well if it can do so where each rank has the final gradients
// of some parameters only (distributed.zero_stage = 2). Any other that runs at AFTER_TRAIN_BATCH is an error then.
class COMPOSER_EXPORT DividedGradients {
 public:
  // Adds up a tensor over ranks, in place. A collective: all ranks call it, also one without gradients.
  using SumOverRanks = std::function<void(const at::Tensor&)>;

  virtual ~DividedGradients();
  // When a fit begins. Empty: every rank has all gradients.
  virtual void use_sum(SumOverRanks sum) = 0;
};

}  // namespace composer
