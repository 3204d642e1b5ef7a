#pragma once
#include <vector>

#include "composer/core/export.h"
#include "composer/optim/any_optimizer.h"
#include "composer/optim/named_optimizer.h"

namespace composer::optim {

struct AdagradOptions {
  double lr = 1e-2;                         // learning rate, >= 0
  double lr_decay = 0;                      // >= 0; the rate at step t is lr / (1 + (t - 1) * lr_decay)
  double weight_decay = 0;                  // >= 0; added to the gradient (L2)
  double initial_accumulator_value = 0;     // >= 0; initial sum of squares
  double eps = 1e-10;                       // >= 0; added to the denominator
  std::vector<ParameterGroup> groups = {};  // options for some parameters
  bool decay_matrices_only = false;         // no decay of tensors of fewer than 2 dimensions, unless a group sets it
  bool step_in_backward = false;            // update each parameter during backward
};
COMPOSER_EXPORT AnyOptimizer adagrad(AdagradOptions options = {});  // does not match? AdagradOptions{...} tells why

// PyTorch's formula. State: step (0-d float) and sum. Accepts sparse gradients if there is no weight decay.
class COMPOSER_EXPORT Adagrad final : public NamedOptimizer {
 public:
  Adagrad(const NamedParameters& parameters, const AdagradOptions& options);

 private:
  void prepare(const at::Tensor& parameter, ParameterState& state, const Options& options) const override;
  bool elementwise(const Options& options) const override;
  void describe(detail::Slice& slice, ParameterState& state, const Options& options) override;
  void update(detail::Batch& batch, const Options& options) override;
  bool obeys_found_inf(const detail::Batch& batch, const Options& options) const override;
  bool takes_sparse(const Options& options) const override;
  void update_sparse(at::Tensor& parameter, const at::Tensor& gradient, ParameterState& state,
                     const Options& options) override;
};

}  // namespace composer::optim
