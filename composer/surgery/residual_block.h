#pragma once
#include <cstdint>

#include <torch/nn/module.h>

#include "composer/core/export.h"

namespace composer {

// A block of a residual net, finish(shortcut(x) + branch(x)), whose branch can be dropped in training (stochastic
// depth, arXiv:1603.09382). algorithms::StochasticDepth works on modules that derive from this class.
class COMPOSER_EXPORT ResidualBlock : public torch::nn::Module {
 public:
  enum class Drop : std::uint8_t {
    BATCH,   // for all samples of a microbatch together, which saves the branch's time
    SAMPLE,  // for each sample separately
  };

  ~ResidualBlock() override;

  // With a drop rate of 0, adds shortcut and branch. Otherwise, the branch is dropped with that probability in
  // training, and multiplied by the probability of keeping it in evaluation. Random numbers come from libtorch's
  // generator of the CPU (BATCH) or of the input's device (SAMPLE).
  at::Tensor forward(const at::Tensor& x);

  // Throws ConfigError unless 0 <= rate <= 1.
  void set_drop(double rate, Drop how);
  double drop_rate() const { return drop_rate_; }

 protected:
  virtual at::Tensor branch(const at::Tensor& x) = 0;
  virtual at::Tensor shortcut(const at::Tensor& x);                       // x by default
  virtual at::Tensor add(at::Tensor branch, const at::Tensor& shortcut);  // their sum; may write into the branch
  virtual at::Tensor finish(at::Tensor sum);                              // sum by default; may write into it

 private:
  double drop_rate_ = 0;
  Drop drop_ = Drop::BATCH;
};

}  // namespace composer
