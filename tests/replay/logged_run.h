// The programs of logged_keys.json and console.json.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "composer/trainer/trainer.h"
#include "tests/replay/replay.h"
#include "tests/replay/training_run.h"

namespace composer::replay {

// The recorded net with its recorded initial weights.
std::shared_ptr<Model> logged_model(const Json& config, const Context& context);

// A trainer without callbacks and loggers. Throws Unsupported. The options keep a reference to the log.
TrainerOptions logged_options(const Json& config, const Context& context, RandomLog& log);

// What a case of logged_keys.json logs, key by key. With `factors`, a table of these in the place of the schedules.
Json log_all(const Json& c, const Context& context, const std::optional<std::vector<double>>& factors,
             const std::vector<std::shared_ptr<Callback>>& observers);
inline Json log_all(const Json& c, const Context& context) { return log_all(c, context, {}, {}); }
// The factor of the learning rate for each batch, and for one after the last.
std::vector<double> factors_of_logged(const Json& c, const Context& context);

// A callback by its recorded class and arguments. Throws Unsupported for one that the library does not have.
void add_callback(Callbacks& list, const Json& recorded);

// The norms that OptimizerMonitor logs. Without a context: to be listed only.
Rule optimizer_norms_rule(const Context* context);

// Where a stopper ends a run.
Json stop(const Json& c);
Json stopper_recording(const Json& c);
Rules stopper_rules();

}  // namespace composer::replay
