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
class Engine;
class Feed;
class LearningRates;
class Logger;
class Ranks;
class TrainingData;

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

// The hyperparameters of a run: what is said of how it is trained, and what of that its log has.
class Hyperparameters {
 public:
  // What says it.
  struct Needs {
    const TrainerOptions& options;
    const State& state;
    const Ranks& ranks;
    Logger& logger;
    const Engine& engine;
    const TrainingData& data;
    const LearningRates& rates;
  };
  explicit Hyperparameters(const Needs& needs) : on_(needs) {}

  // As checkpoints contain them; with those of `before`, of the run that goes on, where it does not say them any more.
  StateDict now(const StateDict& before = {}) const;

  void log_run();  // when a trainer is made
  // When a fit begins, once in a run.
  void log_algorithms(bool goes_on);
  // All that checkpoints say of how the run is trained; of a run that goes on, what has changed since `before`.
  void log_options(const StateDict& before);
  // Which of them the log of the run has. Only that of this run matters.
  void visit_state(StateVisitor& visit);

 private:
  struct Logged {
    bool algorithms = false, options = false;
    bool options_here = false;  // by this process

    void visit_state(StateVisitor& visit) {
      visit("algorithms", algorithms);
      visit("options", options);
    }
  };

  Needs on_;
  Logged logged_;
};

// Of `now`, what `before` does not have or has with another value.
StateDict changed(const StateDict& before, const StateDict& now);

// For Logger::log_hyperparameters().
LogValue log_value(const StateValue& value);

// One warning of all that both have, and that differs, and of what only one of them has because there are more or fewer
// parameter groups.
void warn_of_changes(const StateDict& before, const StateDict& now);

}  // namespace composer
