#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/algorithm.h"
#include "composer/core/divided_gradients.h"
#include "composer/core/export.h"
#include "composer/optim/parameter_group.h"

namespace composer::algorithms {

enum class ClippingType : std::uint8_t {
  NORM,     // scales all gradients by one factor, so that their common L2 norm is at most the threshold
  VALUE,    // clamps each element to plus and minus the threshold
  ADAPTIVE  // scales the gradient of each unit (row of dimension 0), so that its L2 norm is at most the threshold times
            // that of the unit's weights, but at least min_weight_norm (arXiv:2102.06171)
};

struct GradientClippingOptions {
  ClippingType clipping_type = ClippingType::NORM;  // NORM, VALUE or ADAPTIVE: what the threshold limits
  double clipping_threshold = 0;                    // required, > 0
  double min_weight_norm = 1e-3;  // ADAPTIVE treats a smaller norm of a unit's weights as this one, >= 0
};

// Clips the gradients of these parameters in place. Parameters without a gradient are skipped; a parameter that is
// listed twice counts once. Throws ConfigError for a sparse gradient with VALUE or ADAPTIVE. Does not wait for a GPU.
COMPOSER_EXPORT void apply_gradient_clipping(const std::vector<at::Tensor>& parameters, ClippingType type,
                                             double threshold, double min_weight_norm = 1e-3);

// Clips the gradients of a batch before the optimizer's step. Throws ConfigError from the constructor.
class COMPOSER_EXPORT GradientClipping final : public Algorithm, public DividedGradients {
 public:
  explicit GradientClipping(GradientClippingOptions options);
  StateDict local_hparams() const override;
  EventSet events() const override { return {Event::INIT, Event::AFTER_TRAIN_BATCH}; }
  void apply(Event event, State& state, Logger& logger) override;
  void use_sum(SumOverRanks sum) override { sum_ = std::move(sum); }

 private:
  bool has_changed(const State& state);

  GradientClippingOptions options_;
  optim::NamedParameters parameters_;  // the model's; collected again when the optimizer's parameters change
  std::vector<const void*> trained_;   // the optimizer's parameters
  SumOverRanks sum_;
};

}  // namespace composer::algorithms
