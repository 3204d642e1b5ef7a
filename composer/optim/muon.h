#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "composer/core/export.h"
#include "composer/optim/adam.h"
#include "composer/optim/any_optimizer.h"
#include "composer/optim/named_optimizer.h"

namespace composer::optim {

// Muon (K. Jordan et al. 2024, https://kellerjordan.github.io/posts/muon; scale of the update as in arXiv:2502.16982)
// for the weights of hidden layers, and AdamW for all other parameters. buffer = momentum * buffer + g;  d = g +
// momentum * buffer if nesterov, else buffer. o is d with its singular values brought near 1 by ns_steps Newton-Schulz
// iterations x = a x + (b A + c A^2) x, A = x x^T, (a, b, c) = (3.4445, -4.7750, 2.0315), starting with x = d / |d|.
// Then p = (1 - lr * weight_decay) * p - lr * 0.2 * sqrt(max(rows, columns)) * o, which moves weights as far as AdamW
// would. On processors with bfloat16 units, float matrices of at least 128 rows and columns are iterated in bfloat16.
struct MuonOptions {
  double lr = 1e-3;
  double momentum = 0.95;
  bool nesterov = true;
  std::int64_t ns_steps = 5;                     // 1 to 100
  double weight_decay = 0.1;                     // multiplied by the learning rate; used by Muon and AdamW
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;  // used by AdamW
  // Patterns, as in ParameterGroup, for the names of parameters that AdamW updates. List embeddings and the last layer.
  // Tensors of fewer than 2 dimensions always use AdamW. Tensors of more than 2 dimensions are matrices with a row for
  // each index of dimension 0.
  std::vector<std::string> adamw_for = {};
  std::vector<ParameterGroup> groups = {};
  bool decay_matrices_only = false;  // weight_decay = 0 for tensors of fewer than 2 dimensions, unless set by a group
  bool step_in_backward = false;     // see NamedOptimizer::steps_in_backward()
};
COMPOSER_EXPORT AnyOptimizer muon(MuonOptions options = {});  // does not match? MuonOptions{...} tells why

// State: momentum_buffer, or AdamW's state. Throws ConfigError if a pattern of adamw_for matches no name.
class COMPOSER_EXPORT Muon final : public NamedOptimizer {
 public:
  Muon(const NamedParameters& parameters, const MuonOptions& options);

 private:
  void prepare(const at::Tensor& parameter, ParameterState& state, const Options& options) const override;
  bool elementwise(const Options& options) const override;
  void describe(detail::Slice& slice, ParameterState& state, const Options& options) override;
  void update(detail::Batch& batch, const Options& options) override;

  detail::AdamCorrections corrections_;
};

}  // namespace composer::optim
