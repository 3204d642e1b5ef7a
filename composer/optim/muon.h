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
// Tensors of fewer than 2 dimensions use AdamW; those of more are matrices with a row for each index of dimension 0.
struct MuonOptions {
  double lr = 1e-3;           // learning rate, >= 0
  double momentum = 0.95;     // in [0, 1)
  bool nesterov = true;       // Nesterov's momentum
  std::int64_t ns_steps = 5;  // 1 to 100; Newton-Schulz iterations
  double weight_decay = 0.1;  // >= 0; multiplied by the learning rate; of Muon and AdamW
  double beta1 = 0.9;         // in [0, 1); of AdamW
  double beta2 = 0.95;        // in [0, 1); of AdamW
  double eps = 1e-8;          // >= 0; of AdamW
  // patterns for the names of matrices that AdamW updates; list embeddings and the last layer
  std::vector<std::string> adamw_for = {};
  std::vector<ParameterGroup> groups = {};  // options for some parameters
  bool decay_matrices_only = false;         // no decay of tensors of fewer than 2 dimensions, unless a group sets it
  bool step_in_backward = false;            // update each parameter during backward
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
