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

// The part of a run that checkpoints contain. Each owner of a part names its fields in one function, for saving and for
// loading.
struct RunState {
  // Returns "model" and everything else, with the trained weights. For weights only: "model" as it is exported. The
  // tensors are those of the run, not copies.
  StateDict snapshot(bool weights_only) const;
  // Restores everything but the weights, which are loaded before. Values that are to be restored later wait in
  // `resumption`. Errors name `from`.
  void load(const StateDict& saved, const std::string& from, StateVisitor::Of of) const;

  const Ranks& ranks;
  State& state;
  ProcessState& process;
  const Engine& engine;
  WeightsInUse& weights_in_use;
  KeptSettings& settings;
  TrainStep& train_step;
  LearningRates& rates;
  Evaluations& evaluators;
  Tuning& tuning;
  Hyperparameters& hyperparameters;
  FitHistory& fits;
  std::optional<Fit>& fit;
  Checkpoints& checkpoints;
  Resumption& resumption;

 private:
  void visit_state(StateVisitor& visit) const;
  void visit_epoch(StateVisitor& visit) const;
  void visit_measured(StateVisitor& visit) const;
};

// This rank's part of the state of an optimizer that is divided among ranks.
StateDict own_optimizer(State& state, const TrainStep& step);
// Like own_optimizer(), with the state of algorithms and callbacks, which may differ by rank.
StateDict own_part(State& state, const TrainStep& step, const Engine& engine,
                   const std::vector<std::string>& ignore_keys);

}  // namespace composer
