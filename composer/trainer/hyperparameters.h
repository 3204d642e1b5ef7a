#pragma once
#include "composer/core/state_dict.h"

namespace composer {

struct State;
struct TrainerOptions;
class Logger;

// What the run's checkpoints say of how it was trained, by name: its options as numbers and text, and what has been
// logged as hyperparameters, now or `before` it went on, when it is not logged again.
StateDict hyperparameters_of(const TrainerOptions& options, const State& state, const Logger& logger,
                             const StateDict& before);

// One warning of all that both have, and that differs.
void warn_of_changes(const StateDict& before, const StateDict& now);

}  // namespace composer
