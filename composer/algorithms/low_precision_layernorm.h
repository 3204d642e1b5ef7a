#pragma once
#include <string>

#include "composer/core/export.h"
#include "composer/core/state.h"
#include "composer/surgery/surgery_algorithm.h"

namespace composer::algorithms {

// Lets layer norms compute in the autocast dtype where autocast is on; otherwise autocast computes them in float32.
// Parameters stay the same tensors with the same names. Replaces nothing if the precision is FP32.
COMPOSER_EXPORT Replacements low_precision_layernorm(torch::nn::Module& model, Precision precision);

// Applies low_precision_layernorm() at INIT, after the other algorithms.
class COMPOSER_EXPORT LowPrecisionLayerNorm final : public SurgeryAlgorithm {
 public:
  LowPrecisionLayerNorm();
  Placement placement() const override { return Placement::LAST; }

 private:
  Replacements operate(State& state) const override;
  void log(const Replacements& done, Logger& logger) const override;
  std::string nothing_found() const override;
};

}  // namespace composer::algorithms
