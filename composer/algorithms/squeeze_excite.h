#pragma once
#include <cstdint>
#include <string>

#include "composer/core/empty_options.h"
#include "composer/core/export.h"
#include "composer/surgery/surgery_algorithm.h"

namespace composer::algorithms {

struct SqueezeExciteOptions {
  double latent_channels = 64;      // width of a block's hidden layer, > 0; below 1: a fraction of the output channels
  std::int64_t min_channels = 128;  // smallest number of input and output channels of a convolution with a block, >= 1
};

// A block that multiplies the channels of images [N, C, H, W] by factors from 0 to 1, which two linear layers compute
// from the mean of each channel. `latent_channels` is as in the options. Throws ConfigError for invalid arguments.
COMPOSER_EXPORT Layer squeeze_excite_2d(std::int64_t channels, double latent_channels = 0.125);

// Inserts such a block after each 2-d convolution with enough channels. Weights stay the same tensors, but
// "conv1.weight" is called "conv1.conv.weight" afterwards. The blocks are initialised like torch's Linear. Throws
// ConfigError for invalid options.
COMPOSER_EXPORT Replacements squeeze_excite(torch::nn::Module& model, const SqueezeExciteOptions& options = {});

// Applies squeeze_excite() at INIT (arXiv:1709.01507).
class COMPOSER_EXPORT SqueezeExcite final : public SurgeryAlgorithm {
 public:
  explicit SqueezeExcite(SqueezeExciteOptions options = {});  // throws ConfigError
  explicit SqueezeExcite(EmptyOptions) : SqueezeExcite(SqueezeExciteOptions()) {}
  StateDict local_hparams() const override;

 private:
  Replacements operate(State& state) const override;
  void log(const Replacements& done, Logger& logger) const override;
  std::string nothing_found() const override;

  SqueezeExciteOptions options_;
};

}  // namespace composer::algorithms
