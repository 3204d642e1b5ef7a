#pragma once
#include <vector>

#include "composer/core/export.h"
#include "composer/optim/any_optimizer.h"
#include "composer/optim/named_optimizer.h"

namespace composer::optim {

// Lion (arXiv:2302.06675, algorithm 2): p -= lr * (sign(beta1 * m + (1 - beta1) * g) + weight_decay * p), then
// m = beta2 * m + (1 - beta2) * g. Use a learning rate 3 to 10 times smaller than AdamW's, and a weight decay larger by
// the same factor.
struct LionOptions {
  double lr = 1e-4;                         // learning rate, >= 0
  double beta1 = 0.9;                       // in [0, 1); weight of the momentum in a step
  double beta2 = 0.99;                      // in [0, 1); decay of the momentum
  double weight_decay = 0;                  // >= 0; multiplied by the learning rate
  std::vector<ParameterGroup> groups = {};  // options for some parameters
  bool decay_matrices_only = false;         // no decay of tensors of fewer than 2 dimensions, unless a group sets it
  bool step_in_backward = false;            // update each parameter during backward
};
COMPOSER_EXPORT AnyOptimizer lion(LionOptions options = {});  // does not match? LionOptions{...} tells why

// State: exp_avg.
class COMPOSER_EXPORT Lion final : public NamedOptimizer {
 public:
  Lion(const NamedParameters& parameters, const LionOptions& options);

 private:
  void prepare(const at::Tensor& parameter, ParameterState& state, const Options& options) const override;
  bool elementwise(const Options& options) const override;
  void describe(detail::Slice& slice, ParameterState& state, const Options& options) override;
  void update(detail::Batch& batch, const Options& options) override;
};

}  // namespace composer::optim
