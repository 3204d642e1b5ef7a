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

// Add the hyperparameters that the rows of these options in trainer_options.cpp stand for.
void tell_model(StateDict& into, const TrainerOptions& options, const InRun& run);
void tell_algorithms(StateDict& into, const TrainerOptions& options, const InRun& run);
void tell_distributed(StateDict& into, const TrainerOptions& options, const InRun& run);

// Adds the options of each parameter group. `made_lr`: learning rates before any schedule.
void add_optimizer(StateDict& into, const torch::optim::Optimizer& optimizer, const std::vector<double>& made_lr);

// What the run's checkpoints contain about how it was trained, by name: its options as numbers and text, and the
// hyperparameters that were logged now or `before` the resume, if they are not logged again.
StateDict hyperparameters_of(const TrainerOptions& options, const State& state, const Logger& logger, const Feed& train,
                             const std::vector<double>& made_lr, const StateDict& before);

// The hyperparameters of a run: what describes how it is trained, and which of that was logged.
class Hyperparameters {
 public:
  // The parts of the trainer that it reads.
  struct Needs {
    const TrainerOptions& options;
    const State& state;
    const Ranks& ranks;
    Logger& logger;
    const Engine& engine;
    const TrainingData& data;
    const LearningRates& rates;
  };
  explicit Hyperparameters(const Needs& needs) : needs_(needs) {}

  // As checkpoints contain them. Values of `before`, from the resumed run, are included if there is no newer value.
  StateDict now(const StateDict& before = {}) const;

  void log_run();  // called when a trainer is made
  // Called when a fit begins; logs once per run.
  void log_algorithms(bool goes_on);
  // Logs everything that checkpoints contain about how the run is trained; for a resumed run, only what has changed
  // since `before`.
  void log_options(const StateDict& before);
  // Which hyperparameters were logged. Read only from a checkpoint of this run.
  void visit_state(StateVisitor& visit);

 private:
  struct Logged {
    bool algorithms = false, options = false;
    bool options_here = false;  // logged by this process

    void visit_state(StateVisitor& visit) {
      visit("algorithms", algorithms);
      visit("options", options);
    }
  };

  Needs needs_;
  Logged logged_;
};

// The entries of `now` that `before` lacks or has with another value.
StateDict changed(const StateDict& before, const StateDict& now);

// Converts a value for Logger::log_hyperparameters().
LogValue log_value(const StateValue& value);

// Logs one warning with all entries that both have with different values, and with the entries that only one of them
// has because the number of parameter groups differs.
void warn_of_changes(const StateDict& before, const StateDict& now);

}  // namespace composer
