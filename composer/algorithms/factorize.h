#pragma once
#include <cstdint>
#include <string>

#include "composer/algorithms/factorize_matrix.h"
#include "composer/core/empty_options.h"
#include "composer/core/export.h"
#include "composer/surgery/surgery_algorithm.h"

namespace composer::algorithms {

struct FactorizeOptions {
  bool factorize_convs = true;      // factorize 2-d convolutions with one group
  bool factorize_linears = true;    // factorize linear layers
  std::int64_t min_channels = 256;  // smallest number of input and output channels of a factorized convolution, >= 1
  double latent_channels = 0.25;    // channels between the two parts, > 0; below 1: a fraction of the smaller number
  std::int64_t min_features = 256;  // smallest number of input and output features of a factorized linear layer, >= 1
  double latent_features = 128;     // features between the two parts, > 0; below 1: a fraction of the smaller number
  bool keep_weights = true;  // begin with the parts whose product is closest to the weights; false: with random parts
};

// The number of channels or features that `latent` stands for between `in` and `out`: from 1 on, the number itself;
// below, this fraction of the smaller one, at least 1.
COMPOSER_EXPORT std::int64_t clean_latent_size(double latent, std::int64_t in, std::int64_t out);
// The largest rank at which two factors need fewer multiplications than a linear layer, or than a convolution with a
// kernel of kernel_area elements.
COMPOSER_EXPORT std::int64_t max_rank_with_possible_speedup(std::int64_t in, std::int64_t out,
                                                            std::int64_t kernel_area = 1);

// Replaces each convolution and linear layer by two smaller ones, module0 and module1, if that saves multiplications.
// module1 has a bias, unless it replaces a linear layer without one. Throws ConfigError for invalid options.
COMPOSER_EXPORT Replacements factorize(torch::nn::Module& model, const FactorizeOptions& options = {});

// Applies factorize() at INIT.
class COMPOSER_EXPORT Factorize final : public SurgeryAlgorithm {
 public:
  explicit Factorize(FactorizeOptions options = {});  // throws ConfigError
  explicit Factorize(EmptyOptions) : Factorize(FactorizeOptions()) {}
  StateDict local_hparams() const override;

 private:
  Replacements operate(State& state) const override;
  void log(const Replacements& done, Logger& logger) const override;
  std::string nothing_found() const override;

  FactorizeOptions options_;
};

}  // namespace composer::algorithms
