#pragma once
#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>

#include "composer/core/empty_options.h"
#include "composer/core/export.h"
#include "composer/surgery/surgery_algorithm.h"

namespace composer::algorithms {

struct WeightStandardizationOptions {
  std::int64_t n_last_layers_ignore = 0;  // number of convolutions, the last registered ones, that do not change; >= 0
};

// For each output channel: (weight - mean) / sqrt(variance + 1e-10), over all other dimensions.
COMPOSER_EXPORT at::Tensor standardize_weights(const at::Tensor& weight);

// Lets convolutions (1-d, 2-d, 3-d) use their standardized weight. The parameter stays the same tensor, but
// "conv1.weight" is called "conv1.parametrizations.weight.original" afterwards. Throws ConfigError for invalid options.
COMPOSER_EXPORT Replacements weight_standardization(torch::nn::Module& model,
                                                    const WeightStandardizationOptions& options = {});

// Applies weight_standardization() at INIT (arXiv:1903.10520).
class COMPOSER_EXPORT WeightStandardization final : public SurgeryAlgorithm {
 public:
  explicit WeightStandardization(WeightStandardizationOptions options = {});  // throws ConfigError
  explicit WeightStandardization(EmptyOptions) : WeightStandardization(WeightStandardizationOptions()) {}
  StateDict local_hparams() const override;

 private:
  Replacements operate(State& state) const override;
  void log(const Replacements& done, Logger& logger) const override;
  std::string nothing_found() const override;

  WeightStandardizationOptions options_;
};

}  // namespace composer::algorithms
