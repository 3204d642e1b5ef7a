#pragma once
#include <string>

#include "composer/core/algorithm.h"
#include "composer/core/empty_options.h"
#include "composer/core/export.h"

namespace composer::algorithms {

struct NoOpModelOptions {
  std::string target_key = "target";  // name in the batch of the tensor from which the outputs are computed
};

// Replaces the model at INIT by one with a single weight, initially 1.5: the outputs are the targets times the weight,
// the loss is their mean squared difference, and there are no metrics. The time of such a run is that of everything but
// the model: the loader, callbacks and loggers.
class COMPOSER_EXPORT NoOpModel final : public Algorithm {
 public:
  explicit NoOpModel(NoOpModelOptions options = {});  // throws ConfigError
  explicit NoOpModel(EmptyOptions) : NoOpModel(NoOpModelOptions()) {}
  StateDict local_hparams() const override;
  EventSet events() const override { return {Event::INIT}; }
  void apply(Event event, State& state, Logger& logger) override;
  bool required_on_load() const override { return true; }

 private:
  NoOpModelOptions options_;
};

}  // namespace composer::algorithms
