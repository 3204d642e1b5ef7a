#pragma once
#include <string>
#include <vector>

#include "composer/core/algorithm.h"
#include "composer/core/event.h"
#include "composer/core/export.h"

namespace composer::algorithms {

struct LoadCheckpointOptions {
  std::string load_path;             // required: the checkpoint's folder, or a link to it; {run_name} is replaced
  bool load_weights_only = false;    // true: training begins anew, with these weights
  bool strict_model_weights = true;  // false: the model may have more or fewer weights
  std::vector<std::string> ignore_keys = {};  // globs of what is not loaded
  Event event = Event::BEFORE_LOAD;           // all but weights can be loaded at BEFORE_LOAD and AFTER_LOAD only
};

// Loads a checkpoint, whenever the event happens: several one after another, say, or weights at the start of each fit.
// BEFORE_LOAD is before the trainer's own load_path, which wins. A run that goes on from its own checkpoint has been
// loaded already; then this does nothing up to the first batch. Throws ConfigError from the constructor, and
// CheckpointError at the event for what is damaged or does not fit. As it changes the state, it is an algorithm.
class COMPOSER_EXPORT LoadCheckpoint final : public Algorithm {
 public:
  explicit LoadCheckpoint(LoadCheckpointOptions options);
  EventSet events() const override { return {options_.event}; }
  bool match(Event event, const State& state) const override;
  void apply(Event event, State& state, Logger& logger) override;

 private:
  LoadCheckpointOptions options_;
};

}  // namespace composer::algorithms
