#pragma once
#include <vector>

#include "composer/core/time.h"
#include "composer/trainer/fit_history.h"
#include "composer/trainer/fit_plan.h"

namespace composer {

struct FitOptions;
struct Resumption;
struct TrainerOptions;
class Checkpoints;
class Engine;
class KeptSettings;
class Ranks;
class TrainStep;
class TrainingData;

// What the options of a fit mean for a trainer as it is, and whether that can be done. A fit that is refused leaves the
// trainer as it was, but for which values of save_best are better, which its loaders may declare.
struct FitPlanner {
  // Throws ConfigError for whatever cannot be done; what it gives can come into force. `remaining` of the fit is to be
  // done.
  FitPlan plan(const FitOptions& given, FitHistory::Remaining remaining, bool needs_loader) const;
  // Throws ConfigError on all ranks, with the first difference, if they plan different things.
  void check_ranks(const FitPlan& plan) const;

  const TrainerOptions& options;
  const Ranks& ranks;
  const State& state;
  const Engine& engine;
  const ProcessSettings& process;
  const TrainStep& train_step;
  const TrainingData& data;
  const LearningRates& rates;
  const Evaluations& evaluations;
  const KeptSettings& settings;
  const FitHistory& fits;
  const Resumption& resumption;
  const Checkpoints& checkpoints;

 private:
  FitPlan plan_lasting(const FitOptions& given) const;
  OptionalTime goal_of(const FitOptions& given, const Timestamp& from) const;
  OptionalTime end_of(const FitOptions& given, const FitPlan& plan, bool needs_limit) const;
  void check_intervals(const FitPlan& plan, bool gives_batches) const;
  void check_step(const FitPlan& plan) const;
  const std::vector<EvalRun>& runs_of(const FitPlan& plan) const;
  const MetricSet& metrics_of_training(const FitPlan& plan) const;
};

}  // namespace composer
