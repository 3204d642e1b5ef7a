#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "composer/core/log_records.h"
#include "composer/core/state_dict.h"

namespace composer {

struct State;
struct TrainerOptions;
class Logger;

// Those that decide what is computed, by name. `train_batch_size` is what the training loader says.
StateDict training_options_of(const TrainerOptions& options, const State& state,
                              std::optional<std::int64_t> train_batch_size);

// What the run's checkpoints say of how it was trained, by name: its options as numbers and text, and what has been
// logged as hyperparameters, now or `before` it went on, when it is not logged again.
StateDict hyperparameters_of(const TrainerOptions& options, const State& state, const Logger& logger,
                             std::optional<std::int64_t> train_batch_size, const StateDict& before);

// Of `now`, what `before` does not have or has with another value.
StateDict changed(const StateDict& before, const StateDict& now);

// As messages show it.
std::string text_of(const StateValue& value);

// For Logger::log_hyperparameters().
LogValue log_value(const StateValue& value);

// One warning of all that both have, and that differs.
void warn_of_changes(const StateDict& before, const StateDict& now);

}  // namespace composer
