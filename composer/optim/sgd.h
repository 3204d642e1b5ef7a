#pragma once
#include <vector>

#include "composer/core/export.h"
#include "composer/optim/any_optimizer.h"
#include "composer/optim/named_optimizer.h"

namespace composer::optim {

struct SgdOptions {
  double lr = 0;                            // required: learning rate, > 0
  double momentum = 0;                      // >= 0
  double dampening = 0;                     // >= 0; fraction of the gradient that the momentum leaves out
  double weight_decay = 0;                  // >= 0; added to the gradient (L2)
  bool nesterov = false;                    // Nesterov's momentum; requires momentum, and dampening = 0
  std::vector<ParameterGroup> groups = {};  // options for some parameters
  bool decay_matrices_only = false;         // no decay of tensors of fewer than 2 dimensions, unless a group sets it
  bool step_in_backward = false;            // update each parameter during backward
};
COMPOSER_EXPORT AnyOptimizer sgd(SgdOptions options);

// Like SGD, but with decoupled weight decay (arXiv:1711.05101) that does not depend on the initial learning rate: p *=
// 1 - lr / initial lr * weight_decay. This form is Composer's.
struct DecoupledSgdwOptions {
  double lr = 0;                            // required: learning rate, > 0
  double momentum = 0;                      // >= 0
  double dampening = 0;                     // >= 0; fraction of the gradient that the momentum leaves out
  double weight_decay = 0;                  // >= 0; multiplied by lr / initial lr
  bool nesterov = false;                    // Nesterov's momentum; requires momentum, and dampening = 0
  std::vector<ParameterGroup> groups = {};  // options for some parameters
  bool decay_matrices_only = false;         // no decay of tensors of fewer than 2 dimensions, unless a group sets it
  bool step_in_backward = false;            // update each parameter during backward
};
COMPOSER_EXPORT AnyOptimizer decoupled_sgdw(DecoupledSgdwOptions options);

// The common base of SGD and DecoupledSGDW. State: momentum_buffer, if momentum is not 0. Accepts sparse gradients if
// momentum and weight decay are 0.
class COMPOSER_EXPORT MomentumOptimizer : public NamedOptimizer {
 protected:
  using NamedOptimizer::NamedOptimizer;
  struct Hyper {
    double lr, momentum, dampening, l2, keep;  // l2: added to the gradient; keep: factor of the weights
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
