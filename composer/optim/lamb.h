#pragma once
#include <vector>

#include "composer/core/export.h"
#include "composer/optim/any_optimizer.h"
#include "composer/optim/named_optimizer.h"

namespace composer::optim {

// LAMB (arXiv:1904.00962, algorithm 2), for very large batches. With Adam's corrected moments m and v of the gradient,
// r = m / (sqrt(v) + eps) + weight_decay * p;  p -= lr * |p| / |r| * r. The norms are those of the whole tensor, and
// their ratio is 1 if either is 0.
struct LambOptions {
  double lr = 1e-3;                         // learning rate, >= 0
  double beta1 = 0.9;                       // in [0, 1); decay of the mean of gradients
  double beta2 = 0.999;                     // in [0, 1); decay of the mean of their squares
  double eps = 1e-6;                        // >= 0; added to the denominator
  double weight_decay = 0;                  // >= 0; added to the step before its norm is taken
  std::vector<ParameterGroup> groups = {};  // options for some parameters
  bool decay_matrices_only = false;         // no decay of tensors of fewer than 2 dimensions, unless a group sets it
  bool step_in_backward = false;            // update each parameter during backward
};
COMPOSER_EXPORT AnyOptimizer lamb(LambOptions options = {});  // does not match? LambOptions{...} tells why

// State: step (0-d float), exp_avg and exp_avg_sq.
class COMPOSER_EXPORT Lamb final : public NamedOptimizer {
 public:
  Lamb(const NamedParameters& parameters, const LambOptions& options);

 private:
  void prepare(const at::Tensor& parameter, ParameterState& state, const Options& options) const override;
  void update(detail::Batch& batch, const Options& options) override;
};

}  // namespace composer::optim
