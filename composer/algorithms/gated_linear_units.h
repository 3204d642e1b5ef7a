#pragma once
#include <string>

#include "composer/core/empty_options.h"
#include "composer/core/export.h"
#include "composer/surgery/feed_forward.h"
#include "composer/surgery/surgery_algorithm.h"

namespace composer::algorithms {

struct GatedLinearUnitsOptions {
  // Activation of the gate: "gelu", "gelu_tanh", "relu", "silu" or "sigmoid"; empty: the layer's own.
  std::string act_fn = "";
  bool gated_layer_bias = false;      // whether the new layer, to which the activation is applied, has a bias
  bool non_gated_layer_bias = false;  // whether the layer that is multiplied by the gate keeps its bias
};

// Gives the feed-forward layers (surgery/feed_forward.h) of a model gates: they compute activation(gated_layer(x)) *
// dense(x) instead of activation(dense(x)). The weight of `dense` stays the same memory; gates are initialised like
// torch's Linear. Throws ConfigError for invalid options.
COMPOSER_EXPORT Replacements gated_linear_units(torch::nn::Module& model, const GatedLinearUnitsOptions& options = {});

// Applies gated_linear_units() at INIT (arXiv:2002.05202).
class COMPOSER_EXPORT GatedLinearUnits final : public SurgeryAlgorithm {
 public:
  explicit GatedLinearUnits(GatedLinearUnitsOptions options = {});  // throws ConfigError
  explicit GatedLinearUnits(EmptyOptions) : GatedLinearUnits(GatedLinearUnitsOptions()) {}
  StateDict local_hparams() const override;

 private:
  Replacements operate(State& state) const override;
  void log(const Replacements& done, Logger& logger) const override;
  std::string nothing_found() const override;

  GatedLinearUnitsOptions options_;
};

}  // namespace composer::algorithms
