#pragma once
#include <string>
#include <vector>

#include "composer/core/log_records.h"
#include "composer/core/state_dict.h"

namespace composer {

struct State;
struct TrainerOptions;
class Feed;
class Logger;

// Which algorithms there are, and their options by name.
StateDict algorithm_options_of(const TrainerOptions& options);

// Those that decide what is computed, by name. `train` may be empty. `made_lr`: the rate of each parameter group before
// any schedule.
StateDict training_options_of(const TrainerOptions& options, const State& state, const Feed& train,
                              const std::vector<double>& made_lr);

// What the run's checkpoints say of how it was trained, by name: its options as numbers and text, and what has been
// logged as hyperparameters, now or `before` it went on, when it is not logged again.
StateDict hyperparameters_of(const TrainerOptions& options, const State& state, const Logger& logger, const Feed& train,
                             const std::vector<double>& made_lr, const StateDict& before);

// Of `now`, what `before` does not have or has with another value.
StateDict changed(const StateDict& before, const StateDict& now);

// As messages show it.
std::string text_of(const StateValue& value);

// For Logger::log_hyperparameters().
LogValue log_value(const StateValue& value);

// One warning of all that both have, and that differs, and of what only one of them has because there are more or fewer
// parameter groups.
void warn_of_changes(const StateDict& before, const StateDict& now);

}  // namespace composer
