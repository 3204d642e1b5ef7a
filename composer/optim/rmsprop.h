#pragma once
#include <vector>

#include "composer/core/export.h"
#include "composer/optim/any_optimizer.h"
#include "composer/optim/named_optimizer.h"

namespace composer::optim {

struct RmspropOptions {
  double lr = 1e-2;
  double alpha = 0.99;  // decay of the mean of squares; 0 <= alpha < 1
  double eps = 1e-8;
  double momentum = 0;
  double weight_decay = 0;  // added to the gradient (L2)
  bool centered = false;    // divide by the standard deviation instead of the root mean square
  std::vector<ParameterGroup> groups = {};
  bool decay_matrices_only = false;  // weight_decay = 0 for tensors of fewer than 2 dimensions, unless set by a group
  bool step_in_backward = false;     // see NamedOptimizer::steps_in_backward()
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
