#pragma once
#include <cstdint>

#include <torch/nn/module.h>

#include "composer/core/export.h"

namespace composer {

// A block of a residual net, finish(shortcut(x) + branch(x)), whose branch can be dropped while it trains (stochastic
// depth, arXiv:1603.09382). A block that derives from it takes part in algorithms::StochasticDepth.
class COMPOSER_EXPORT ResidualBlock : public torch::nn::Module {
 public:
  enum class Drop : std::uint8_t {
    BATCH,   // for all samples of a microbatch at once, which saves the branch's time
    SAMPLE,  // for each sample by itself
  };

  ~ResidualBlock() override;

  // With a drop rate of 0: shortcut and branch. Otherwise, in training the branch is left out with that probability; in
  // evaluation it is multiplied by the probability that it is kept. Random numbers come from libtorch's generator of
  // the CPU (BATCH) or of the input's device (SAMPLE).
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
