#pragma once
#include <string>

#include "composer/core/empty_options.h"
#include "composer/core/export.h"
#include "composer/surgery/feed_forward.h"
#include "composer/surgery/surgery_algorithm.h"

namespace composer::algorithms {

struct GatedLinearUnitsOptions {
  std::string act_fn = "";        // of the gate: "gelu", "gelu_tanh", "relu", "silu", "sigmoid"; "": the layer's own
  bool gated_layer_bias = false;  // of the new layer, to which the activation is applied
  bool non_gated_layer_bias = false;  // whether the layer that is multiplied by the gate keeps its bias
};

// Lets the feed-forward layers (surgery/feed_forward.h) of a model multiply activation(gated_layer(x)) by dense(x)
// instead of applying the activation to dense(x). The weight of `dense` stays the same memory; gates are initialised as
// torch's Linear. Throws ConfigError for invalid options.
COMPOSER_EXPORT Replacements gated_linear_units(torch::nn::Module& model, const GatedLinearUnitsOptions& options = {});

// Does this at INIT (arXiv:2002.05202).
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
