#pragma once
#include <cstdint>

#include "composer/core/algorithm.h"
#include "composer/core/empty_options.h"
#include "composer/core/export.h"
#include "composer/core/load_check.h"

namespace torch {
namespace nn {
class Module;
}
namespace optim {
class Optimizer;
}
}  // namespace torch

namespace composer::algorithms {

struct LayerFreezingOptions {
  double freeze_start = 0.5;  // share of the run after which layers are frozen, 0 to 1
  double freeze_level = 1.0;  // share of the layers, without the last one, that is frozen at the end of the run, 0 to 1
};

// The share of the layers that is frozen at this point of the run: 0 until freeze_start, then growing linearly.
COMPOSER_EXPORT double freeze_schedule(double current_duration, const LayerFreezingOptions& options);

struct FrozenLayers {
  std::int64_t depth;  // number of frozen layers
  double percentage;   // freeze_schedule()
};

// Freezes the first layers of a model: modules without children that have parameters, in the model's order, all but the
// last. Their parameters no longer require gradients, and are removed from the optimizer together with their state.
// Parameters that a later layer shares are still trained.
COMPOSER_EXPORT FrozenLayers freeze_layers(torch::nn::Module& model, torch::optim::Optimizer& optimizer,
                                           double current_duration, const LayerFreezingOptions& options = {});

// Calls freeze_layers() at the end of each epoch. Throws ConfigError from the constructor.
class COMPOSER_EXPORT LayerFreezing final : public Algorithm, public LoadCheck {
 public:
  explicit LayerFreezing(LayerFreezingOptions options = {});
  explicit LayerFreezing(EmptyOptions) : LayerFreezing() {}
  StateDict local_hparams() const override;
  EventSet events() const override { return {Event::INIT, Event::FIT_START, Event::EPOCH_END}; }
  void apply(Event event, State& state, Logger& logger) override;
  bool takes_part_in_trials() const override { return false; }
  void visit_state(StateVisitor& visit) override;
  // Rejects a checkpoint with fewer frozen layers: the optimizer no longer has the state of the additional ones.
  void check_load(const StateDict& saved) const override;

 private:
  LayerFreezingOptions options_;
  std::int64_t frozen_ = 0;
  State* state_ = nullptr;  // the trainer's state, from INIT on
};

}  // namespace composer::algorithms
