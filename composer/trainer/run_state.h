#pragma once
#include <optional>
#include <string>
#include <vector>

#include "composer/core/state_dict.h"

namespace composer {

struct Fit;
struct FitHistory;
struct ProcessState;
struct Resumption;
struct State;
class Checkpoints;
class Engine;
class Evaluations;
class Hyperparameters;
class KeptSettings;
class LearningRates;
class Ranks;
class TrainStep;
class Tuning;
class WeightsInUse;

// What checkpoints keep of a run: each owner of a part of it names its fields, once for saving and for loading.
struct RunState {
  // "model" and everything else, with the trained weights; of weights only, "model" as it is exported. The tensors are
  // the run's own.
  StateDict snapshot(bool weights_only) const;
  // Everything else than the weights, which are loaded before. What is not to be in force yet waits in `resumption`.
  // `from` is named by errors.
  void load(const StateDict& saved, const std::string& from, StateVisitor::Of of) const;

  const Ranks& ranks;
  State& state;
  ProcessState& process;
  const Engine& engine;
  WeightsInUse& weights_in_use;
  KeptSettings& settings;
  TrainStep& train_step;
  LearningRates& rates;
  Evaluations& evaluations;
  Tuning& tuning;
  Hyperparameters& hyperparameters;
  FitHistory& fits;
  std::optional<Fit>& fit;
  Checkpoints& checkpoints;
  Resumption& resumption;

 private:
  void visit_state(StateVisitor& visit) const;
  void visit_measured(StateVisitor& visit) const;
};

// What this rank has of the state of an optimizer that is divided among ranks.
StateDict own_optimizer(State& state, const TrainStep& step);
// Also what algorithms and callbacks remember, which may differ by rank.
StateDict own_part(State& state, const TrainStep& step, const Engine& engine,
                   const std::vector<std::string>& ignore_keys);

}  // namespace composer
