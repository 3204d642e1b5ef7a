#pragma once
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/algorithm.h"
#include "composer/core/export.h"
#include "composer/optim/parameter_group.h"

namespace composer::algorithms {

enum class ClippingType : std::uint8_t {
  NORM,     // scales all gradients alike, so that their common L2 norm is at most the threshold
  VALUE,    // cuts each element off at plus and minus the threshold
  ADAPTIVE  // scales the gradient of each unit (row of dimension 0), so that its L2 norm is at most the threshold times
            // that of the unit's weights (arXiv:2102.06171). A unit whose weights are zero gets no gradient
};

struct GradientClippingOptions {
  ClippingType clipping_type = ClippingType::NORM;
  double clipping_threshold = 0;  // required, > 0
};

// Clips the gradients of these parameters in place. A parameter without gradient is left out; one that is given twice
// counts once. Throws ConfigError for a sparse gradient with VALUE or ADAPTIVE. On a GPU nothing is waited for.
COMPOSER_EXPORT void apply_gradient_clipping(const std::vector<at::Tensor>& parameters, ClippingType type,
                                             double threshold);

// Clips the gradients of a batch, before the optimizer steps. Throws ConfigError from the constructor.
class COMPOSER_EXPORT GradientClipping final : public Algorithm {
 public:
  explicit GradientClipping(GradientClippingOptions options);
  EventSet events() const override { return {Event::INIT, Event::FIT_START, Event::AFTER_TRAIN_BATCH}; }
  void apply(Event event, State& state, Logger& logger) override;

 private:
  bool has_changed(const State& state);

  GradientClippingOptions options_;
  optim::NamedParameters parameters_;  // of the model, as it was when the optimizer's last changed
  std::vector<const void*> trained_;   // the optimizer's
};

}  // namespace composer::algorithms
