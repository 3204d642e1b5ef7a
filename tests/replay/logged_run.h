// The programs of logged_keys.json and console.json.
#pragma once
#include <vector>

#include "composer/trainer/trainer.h"
#include "tests/replay/replay.h"
#include "tests/replay/schedule_walk.h"
#include "tests/replay/training_run.h"

namespace composer::replay {

// The recorded net with its recorded initial weights.
std::shared_ptr<Model> logged_model(const Json& config, const Context& context);

// A trainer without callbacks and loggers. Throws Unsupported. The options keep a reference to the log.
TrainerOptions logged_options(const Json& config, const Context& context, RandomLog& log);

// The factors of the learning rate for each batch, and for one after the last.
std::vector<double> factors_of_logged(const Json& config, Rates rates);

// A callback by its recorded class and arguments. Throws Unsupported for one that the library does not have.
void add_callback(Callbacks& list, const Json& recorded);

}  // namespace composer::replay
