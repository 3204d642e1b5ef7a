#pragma once
#include <vector>

#include "composer/core/export.h"
#include "composer/optim/any_optimizer.h"
#include "composer/optim/named_optimizer.h"

namespace composer::optim {

// decay_matrices_only, groups and step_in_backward as in SgdOptions.
struct AdagradOptions {
  double lr = 1e-2;
  double lr_decay = 0;  // lr / (1 + lr_decay * steps)
  double eps = 1e-10;
  double weight_decay = 0;  // added to the gradient (L2)
  double initial_accumulator_value = 0;
  bool decay_matrices_only = false;
  std::vector<ParameterGroup> groups = {};
  bool step_in_backward = false;
};

// Gradients divided by the root of the sum of their squares (Duchi, Hazan and Singer, JMLR 12, 2011). As PyTorch's.
class COMPOSER_EXPORT Adagrad final : public NamedOptimizer {
 public:
  Adagrad(const NamedParameters& parameters, const AdagradOptions& options);

 private:
  void prepare(const at::Tensor& parameter, ParameterState& state, const Options& options) const override;
  bool describe(detail::Slice& slice, ParameterState& state, const Options& options) override;
  void update(at::Tensor& parameter, const at::Tensor& gradient, ParameterState& state,
              const Options& options) override;
};

COMPOSER_EXPORT AnyOptimizer adagrad(AdagradOptions options = {});

COMPOSER_EXPORT std::vector<OptionField> fields_of(AdagradOptions& options);

}  // namespace composer::optim
