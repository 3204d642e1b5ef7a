#pragma once
#include <memory>
#include <optional>

#include "composer/core/callback.h"
#include "composer/core/model.h"
#include "composer/core/plugins.h"
#include "tests/replay/training_run.h"

namespace composer::replay {

// The cases of algorithms.json whose algorithms average weights, freeze them or add passes; nothing for any other.
std::optional<Outcome> replay_training_algorithm(const Json& c, const Context& context);
// The deliberate differences of these.
Rules training_algorithm_rules();

// Adds EMA, SWA, SAM or LayerFreezing as a run has it; false for any other.
bool add_training_algorithm(Algorithms& list, const Json& one);

// What a run of training.json shows of these algorithms beside its weights.
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

// The deliberate differences of whole runs. Without a context: to be listed only.
Rules training_run_rules(const Context* context);

}  // namespace composer::replay
