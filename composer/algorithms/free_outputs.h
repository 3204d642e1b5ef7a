#pragma once
#include "composer/core/algorithm.h"
#include "composer/core/export.h"

namespace composer::algorithms {

// Drops the model's outputs after the loss was computed, so that their memory is free during the backward pass, unless
// the backward pass needs them. Metrics of training are measured on outputs: if the model has such metrics, nothing is
// dropped, with a warning.
class COMPOSER_EXPORT FreeOutputs final : public Algorithm {
 public:
  EventSet events() const override { return {Event::INIT, Event::AFTER_LOSS}; }
  void apply(Event event, State& state, Logger& logger) override;

 private:
  bool keeps_ = false;
};

}  // namespace composer::algorithms
