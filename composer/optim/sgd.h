#pragma once
#include <vector>

#include "composer/core/export.h"
#include "composer/optim/any_optimizer.h"
#include "composer/optim/named_optimizer.h"

namespace composer::optim {

struct SgdOptions {
  double lr = 0;  // > 0, required
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;           // sgd: added to the gradient (L2). decoupled_sgdw: taken off the weights
  bool nesterov = false;             // needs momentum, and no dampening
  bool decay_matrices_only = false;  // no weight decay of biases, norms and all others of less than 2 dimensions
  std::vector<ParameterGroup> groups = {};
  bool step_in_backward = false;  // see NamedOptimizer::steps_in_backward()
};

// Stochastic gradient descent with momentum, as PyTorch's.
class COMPOSER_EXPORT SGD : public NamedOptimizer {
 public:
  SGD(const NamedParameters& parameters, const SgdOptions& options);

 protected:
  SGD(const char* who, const NamedParameters& parameters, const SgdOptions& options, bool decoupled);
  void prepare(const at::Tensor& parameter, ParameterState& state, const Options& options) const override;
  bool describe(detail::Slice& slice, ParameterState& state, const Options& options) override;
  void update(at::Tensor& parameter, const at::Tensor& gradient, ParameterState& state,
              const Options& options) override;

 private:
  bool decoupled_;
};

// With decoupled weight decay (arXiv:1711.05101) that does not depend on the learning rate, but follows its schedule:
// weights *= 1 - weight_decay * lr / initial lr. As Composer's.
class COMPOSER_EXPORT DecoupledSGDW final : public SGD {
 public:
  DecoupledSGDW(const NamedParameters& parameters, const SgdOptions& options);
};

COMPOSER_EXPORT AnyOptimizer sgd(SgdOptions options);
COMPOSER_EXPORT AnyOptimizer decoupled_sgdw(SgdOptions options);

// For groups and tables.
COMPOSER_EXPORT std::vector<OptionField> fields_of(SgdOptions& options);

}  // namespace composer::optim
