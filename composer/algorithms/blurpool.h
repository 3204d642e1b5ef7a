#pragma once
#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>

#include "composer/core/empty_options.h"
#include "composer/core/export.h"
#include "composer/surgery/surgery_algorithm.h"

namespace composer::algorithms {

struct BlurPoolOptions {
  bool replace_convs = true;     // replace convolutions with a stride above 1
  bool replace_maxpools = true;  // replace 2-d max-pools
  bool blur_first = true;        // blur before a convolution; false: after it, which costs about stride^2 times as much
  std::int64_t min_channels = 16;  // smallest number of input channels of a convolution that is replaced, >= 1
};

// Filters each channel of [N, C, H, W] separately, with a padding of half the filter's size. The filter is [1, 1, h, w]
// for all channels, or [C, 1, h, w]; undefined: 3x3 with the weights 1, 2, 1. The stride is one number, or {rows,
// columns}.
COMPOSER_EXPORT at::Tensor blur_2d(const at::Tensor& input, at::IntArrayRef stride = 1, const at::Tensor& filter = {});

// Inserts a blur before or after strided convolutions, and between each max-pool and its stride. Weights stay the same
// tensors, but "conv1.weight" is called "conv1.conv.weight" afterwards. Throws ConfigError for invalid options.
COMPOSER_EXPORT Replacements blurpool(torch::nn::Module& model, const BlurPoolOptions& options = {});

// Applies blurpool() at INIT. Convolutions and pools become less sensitive to shifts of the image (arXiv:1904.11486).
class COMPOSER_EXPORT BlurPool final : public SurgeryAlgorithm {
 public:
  explicit BlurPool(BlurPoolOptions options = {});  // throws ConfigError
  explicit BlurPool(EmptyOptions) : BlurPool(BlurPoolOptions()) {}
  StateDict local_hparams() const override;

 private:
  Replacements operate(State& state) const override;
  void log(const Replacements& done, Logger& logger) const override;
  std::string nothing_found() const override;

  BlurPoolOptions options_;
};

}  // namespace composer::algorithms
