#pragma once
#include <vector>

#include "composer/core/export.h"
#include "composer/optim/any_optimizer.h"
#include "composer/optim/named_optimizer.h"

namespace composer::optim {

// decay_matrices_only, groups and step_in_backward as in SgdOptions.
struct LionOptions {
  double lr = 1e-4;
  double beta1 = 0.9, beta2 = 0.99;
  double weight_decay = 0;  // times the learning rate, taken off the weights
  bool decay_matrices_only = false;
  std::vector<ParameterGroup> groups = {};
  bool step_in_backward = false;
};

// The sign of an interpolation of gradient and momentum (arXiv:2302.06675), with decoupled weight decay. Its learning
// rate is 3 to 10 times smaller than AdamW's, its weight decay as much larger.
class COMPOSER_EXPORT Lion final : public NamedOptimizer {
 public:
  Lion(const NamedParameters& parameters, const LionOptions& options);

 private:
  void prepare(const at::Tensor& parameter, ParameterState& state, const Options& options) const override;
  bool describe(detail::Slice& slice, ParameterState& state, const Options& options) override;
  void update(at::Tensor& parameter, const at::Tensor& gradient, ParameterState& state,
              const Options& options) override;
};

COMPOSER_EXPORT AnyOptimizer lion(LionOptions options = {});

COMPOSER_EXPORT std::vector<OptionField> fields_of(LionOptions& options);

}  // namespace composer::optim
