#pragma once
#include <string>
#include <vector>

#include "composer/core/algorithm.h"
#include "composer/core/event.h"
#include "composer/core/export.h"
#include "composer/core/state_dict.h"

namespace composer::algorithms {

struct LoadCheckpointOptions {
  std::string load_path = {};  // required: the checkpoint's folder, or a link to it; with load_weights_only also a file
                               // of weights; {run_name} is replaced
  bool load_weights_only = false;             // load the weights only, so training starts from scratch
  bool strict_model_weights = true;           // false: the model may have more or fewer weights than the checkpoint
  std::vector<std::string> ignore_keys = {};  // wildcards for keys that are not loaded, such as "optimizer/*"; if set,
                                              // the model may have more or fewer weights
  Event event = Event::BEFORE_LOAD;  // when to load; at events other than BEFORE_LOAD and AFTER_LOAD, weights only
};

// Loads a checkpoint at each occurrence of the event, for example weights at the start of each fit. At BEFORE_LOAD it
// comes before the trainer's own load_path, which takes precedence. In a run resumed from its own checkpoint, it does
// nothing until the first batch. Throws ConfigError from the constructor, and CheckpointError at the event for a
// checkpoint that is damaged or does not match. It is an algorithm because it changes the state.
class COMPOSER_EXPORT LoadCheckpoint final : public Algorithm {
 public:
  explicit LoadCheckpoint(LoadCheckpointOptions options);
  StateDict local_hparams() const override;
  EventSet events() const override { return {options_.event}; }
  bool match(Event event, const State& state) const override;
  void apply(Event event, State& state, Logger& logger) override;

 private:
  LoadCheckpointOptions options_;
  std::string path_;  // absolute, or a URI
};

}  // namespace composer::algorithms
