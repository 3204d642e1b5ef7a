// Adam's update, for Adam itself and for optimizers that update some parameters with AdamW. Internal.
#pragma once
#include <cstddef>

#include "composer/optim/adam.h"
#include "composer/optim/batch.h"
#include "composer/optim/groups.h"

namespace composer::optim::detail {

struct AdamHyper {
  double lr, beta1, beta2, eps, l2, decay;  // p *= 1 - decay
  bool amsgrad;
};

enum AdamState : std::size_t { STEP, EXP_AVG, EXP_AVG_SQ, MAX_EXP_AVG_SQ };

void prepare_adam(const at::Tensor& parameter, ParameterState& state, bool amsgrad);
void describe_adam(Slice& slice, ParameterState& state, const AdamHyper& hyper, AdamCorrections& memo);
// Whether update_adam() uses a fused kernel, which obeys batch.found_inf.
bool is_fused_adam(const Batch& batch, const AdamHyper& hyper);
void update_adam(const Batch& batch, const AdamHyper& hyper);

}  // namespace composer::optim::detail
