#pragma once
#include <vector>

#include "composer/core/export.h"
#include "composer/optim/any_optimizer.h"
#include "composer/optim/named_optimizer.h"

namespace composer::optim {

struct RmspropOptions {
  double lr = 1e-2;                         // learning rate, >= 0
  double alpha = 0.99;                      // in [0, 1); decay of the mean of squares
  double eps = 1e-8;                        // >= 0; added to the denominator
  double momentum = 0;                      // >= 0
  double weight_decay = 0;                  // >= 0; added to the gradient (L2)
  bool centered = false;                    // divide by the standard deviation instead of the root mean square
  std::vector<ParameterGroup> groups = {};  // options for some parameters
  bool decay_matrices_only = false;         // no decay of tensors of fewer than 2 dimensions, unless a group sets it
  bool step_in_backward = false;            // update each parameter during backward
};
COMPOSER_EXPORT AnyOptimizer rmsprop(RmspropOptions options = {});  // does not match? RmspropOptions{...} tells why

// PyTorch's formula. State: square_avg, momentum_buffer with momentum, grad_avg if centered.
class COMPOSER_EXPORT RMSprop final : public NamedOptimizer {
 public:
  RMSprop(const NamedParameters& parameters, const RmspropOptions& options);

 private:
  void prepare(const at::Tensor& parameter, ParameterState& state, const Options& options) const override;
  bool elementwise(const Options& options) const override;
  void describe(detail::Slice& slice, ParameterState& state, const Options& options) override;
  void update(detail::Batch& batch, const Options& options) override;
};

}  // namespace composer::optim
