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
  double weight_decay = 0;  // added to the gradient (L2)
  bool nesterov = false;    // needs momentum, and no dampening
  std::vector<ParameterGroup> groups = {};
  bool decay_matrices_only = false;  // no weight decay for what has fewer than 2 dimensions, unless its group sets one
  bool step_in_backward = false;     // see NamedOptimizer::steps_in_backward()
};
COMPOSER_EXPORT AnyOptimizer sgd(SgdOptions options);
COMPOSER_EXPORT std::vector<OptionField> fields_of(SgdOptions& options);

// As SGD, but the weights decay by themselves (arXiv:1711.05101), independently of the initial learning rate:
// p *= 1 - lr / initial lr * weight_decay. Composer's form.
struct DecoupledSgdwOptions {
  double lr = 0;  // > 0, required
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
  std::vector<ParameterGroup> groups = {};
  bool decay_matrices_only = false;
  bool step_in_backward = false;
};
COMPOSER_EXPORT AnyOptimizer decoupled_sgdw(DecoupledSgdwOptions options);
COMPOSER_EXPORT std::vector<OptionField> fields_of(DecoupledSgdwOptions& options);

// What both have in common. The state is momentum_buffer, if there is momentum. Without momentum and weight decay
// sparse gradients are welcome.
class COMPOSER_EXPORT MomentumOptimizer : public NamedOptimizer {
 protected:
  using NamedOptimizer::NamedOptimizer;
  struct Hyper {
    double lr, momentum, dampening, l2, keep;  // the decay as an addend of the gradient, and as a factor
    bool nesterov;
  };
  virtual Hyper hyper(const Options& options) const = 0;

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

class COMPOSER_EXPORT SGD final : public MomentumOptimizer {
 public:
  SGD(const NamedParameters& parameters, const SgdOptions& options);

 private:
  Hyper hyper(const Options& options) const override;
};

class COMPOSER_EXPORT DecoupledSGDW final : public MomentumOptimizer {
 public:
  DecoupledSGDW(const NamedParameters& parameters, const DecoupledSgdwOptions& options);

 private:
  Hyper hyper(const Options& options) const override;
};

}  // namespace composer::optim
