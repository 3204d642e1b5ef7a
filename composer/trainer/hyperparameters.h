#pragma once
#include <string>
#include <vector>

#include "composer/core/log_records.h"
#include "composer/core/state_dict.h"

namespace torch::optim {
class Optimizer;
}

namespace composer {

struct InRun;
struct State;
struct TrainerOptions;
class Feed;
class Logger;

// Of these options, the hyperparameters that trainer_options.cpp names.
void tell_model(StateDict& into, const TrainerOptions& options, const InRun& run);
void tell_algorithms(StateDict& into, const TrainerOptions& options, const InRun& run);
void tell_distributed(StateDict& into, const TrainerOptions& options, const InRun& run);

// The options of each parameter group.
void add_optimizer(StateDict& into, const torch::optim::Optimizer& optimizer, const std::vector<double>& made_lr);

// What the run's checkpoints say of how it was trained, by name: its options as numbers and text, and what has been
// logged as hyperparameters, now or `before` it went on, when it is not logged again.
StateDict hyperparameters_of(const TrainerOptions& options, const State& state, const Logger& logger, const Feed& train,
                             const std::vector<double>& made_lr, const StateDict& before);

// Of `now`, what `before` does not have or has with another value.
StateDict changed(const StateDict& before, const StateDict& now);

// For Logger::log_hyperparameters().
LogValue log_value(const StateValue& value);

// One warning of all that both have, and that differs, and of what only one of them has because there are more or fewer
// parameter groups.
void warn_of_changes(const StateDict& before, const StateDict& now);

}  // namespace composer
