#pragma once
#include <vector>

#include "composer/core/export.h"
#include "composer/optim/any_optimizer.h"
#include "composer/optim/named_optimizer.h"

namespace composer::optim {

// decay_matrices_only, groups and step_in_backward as in SgdOptions.
struct RmspropOptions {
  double lr = 1e-2;
  double alpha = 0.99;  // of the running means, in [0, 1)
  double eps = 1e-8;
  double weight_decay = 0;  // added to the gradient (L2)
  double momentum = 0;
  bool centered = false;
  bool decay_matrices_only = false;
  std::vector<ParameterGroup> groups = {};
  bool step_in_backward = false;
};

// Gradients divided by the root of their running mean square (Tieleman and Hinton, Coursera lecture 6.5, 2012);
// centered: by their standard deviation (arXiv:1308.0850). As PyTorch's.
class COMPOSER_EXPORT RMSprop final : public NamedOptimizer {
 public:
  RMSprop(const NamedParameters& parameters, const RmspropOptions& options);

 private:
  void prepare(const at::Tensor& parameter, ParameterState& state, const Options& options) const override;
  bool describe(detail::Slice& slice, ParameterState& state, const Options& options) override;
  void update(at::Tensor& parameter, const at::Tensor& gradient, ParameterState& state,
              const Options& options) override;
};

COMPOSER_EXPORT AnyOptimizer rmsprop(RmspropOptions options = {});

COMPOSER_EXPORT std::vector<OptionField> fields_of(RmspropOptions& options);

}  // namespace composer::optim
