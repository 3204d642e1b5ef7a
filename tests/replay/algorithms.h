// Cases of algorithms.json, which name a function, and what a run of training.json shows of its algorithms.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "composer/core/callback.h"
#include "composer/core/model.h"
#include "composer/core/plugins.h"
#include "composer/core/registry.h"
#include "tests/replay/recorded.h"
#include "tests/replay/replay.h"

namespace composer::replay {

// By the function that a case names.
using Handlers = std::map<std::string, Outcome (*)(const Json& c, const Recorded& tensors)>;
Handlers augmentation_handlers();  // operations on images, RandAugment and AugMix
Handlers depth_handlers();         // stochastic depth
Handlers image_handlers();         // algorithms that change batches
Handlers model_handlers();         // those applied to a whole model, and what they put there
Handlers surgery_handlers();       // those that replace modules
Handlers training_handlers();      // those that average weights, freeze them or add passes

// The deliberate differences of these.
const Rules& depth_rules();
const Rules& image_rules();
const Rules& model_rules();
Rules training_algorithm_rules();

// An algorithm by the name that Composer has for its class.
std::shared_ptr<Algorithm> make_algorithm(const std::string& name, const Settings& settings);
Settings settings_of(const Json& arguments);

// What a run of training.json shows of its algorithms beside its weights.
class TrainingAlgorithms {
 public:
  TrainingAlgorithms(const Algorithms& list, const Json& c);
  std::shared_ptr<LoggerDestination> watch();  // for what is gone when the run ends; this lives longer
  // Adds it: averages, what has been logged, which parameters are trained at the end.
  void add_to(Json& result, const Model& model) const;

 private:
  const Algorithms list_;
  const Json& case_;
  Json swa_;     // the averages when they were put into the model
  Json logged_;  // as in the recording: [[batch, value], ...] by key
};

// The deliberate differences of whole runs.
Rules training_run_rules();

}  // namespace composer::replay
