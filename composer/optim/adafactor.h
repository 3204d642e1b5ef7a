#pragma once
#include <vector>

#include "composer/core/export.h"
#include "composer/optim/any_optimizer.h"
#include "composer/optim/named_optimizer.h"

namespace composer::optim {

// Adafactor (arXiv:1804.04235, algorithms 4 to 6, without momentum). Instead of Adam's second moments of a matrix, it
// keeps the means of their rows and columns. With b = 1 - t^-decay and s = g^2 + eps1:
//   row = b * row + (1 - b) * (mean of s over columns);  column = b * column + (1 - b) * (mean of s over rows);
//   v = row * column / mean(row), or v = b * v + (1 - b) * s for tensors of fewer than 2 dimensions;
//   u = g / sqrt(v), divided by max(1, rms(u) / clip_threshold);  p = (1 - lr * weight_decay) * p - rate * u.
// As in PyTorch, the rms of p is that before its decay.
struct AdafactorOptions {
  double lr = 1e-2;                         // learning rate, >= 0
  bool scale_parameter = true;              // the rate is lr * max(eps2, rms of the parameter); false: lr
  bool relative_step = false;               // lr is at most 1 / sqrt(t) (section 8 of the paper, where lr is 1e-2)
  double eps1 = 1e-30;                      // > 0; added to squares of gradients
  double eps2 = 1e-3;                       // >= 0; least rms of a parameter in the rate
  double clip_threshold = 1;                // > 0; largest rms of an update
  double decay = 0.8;                       // > 0; the mean of squares decays by 1 - t^-decay
  double weight_decay = 0;                  // >= 0; multiplied by the learning rate
  std::vector<ParameterGroup> groups = {};  // options for some parameters
  bool decay_matrices_only = false;         // no decay of tensors of fewer than 2 dimensions, unless a group sets it
  bool step_in_backward = false;            // update each parameter during backward
};
COMPOSER_EXPORT AnyOptimizer
adafactor(AdafactorOptions options = {});  // does not match? AdafactorOptions{...} tells why

// State: step (0-d float), and row_var and col_var over the last two dimensions, or variance. For float16 matrices,
// row_var and col_var are float.
class COMPOSER_EXPORT Adafactor final : public NamedOptimizer {
 public:
  Adafactor(const NamedParameters& parameters, const AdafactorOptions& options);

 private:
  void prepare(const at::Tensor& parameter, ParameterState& state, const Options& options) const override;
  void update(detail::Batch& batch, const Options& options) override;
};

}  // namespace composer::optim
