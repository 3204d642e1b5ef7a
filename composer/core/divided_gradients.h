#pragma once
#include <functional>

#include <ATen/core/Tensor.h>

#include "composer/core/export.h"

namespace composer {

// An algorithm that changes gradients also derives from this if it works when each rank has the final gradients of only
// some parameters (distributed.zero_stage = 2). With zero_stage = 2, any other algorithm that runs at AFTER_TRAIN_BATCH
// is an error.
class COMPOSER_EXPORT DividedGradients {
 public:
  // Adds up a tensor over ranks, in place. This is a collective: all ranks call it, including those without gradients.
  using SumOverRanks = std::function<void(const at::Tensor&)>;

  virtual ~DividedGradients();
  // Called when a fit begins. An empty function means that every rank has all gradients.
  virtual void use_sum(SumOverRanks sum) = 0;
};

}  // namespace composer
