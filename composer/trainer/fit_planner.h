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

// Computes what the options of a fit mean for the current state of a trainer, and checks that it can be done. If a fit
// is rejected, the trainer is unchanged, except for the direction of save_best, which loaders may declare.
struct FitPlanner {
  // Throws ConfigError for anything that cannot be done; the resulting plan can be applied. `remaining`: what is left
  // of the fit.
  FitPlan plan(const FitOptions& given, FitHistory::Remaining remaining, bool needs_loader) const;
  // Throws ConfigError on all ranks, with the first difference, if the plans of ranks differ.
  void check_ranks(const FitPlan& plan) const;

  const TrainerOptions& options;
  const Ranks& ranks;
  const State& state;
  const Engine& engine;
  const ProcessSettings& process;
  const TrainStep& train_step;
  const TrainingData& data;
  const LearningRates& rates;
  const Evaluations& evaluators;
  const KeptSettings& settings;
  const FitHistory& fits;
  const Resumption& resumption;
  const Checkpoints& checkpoints;

 private:
  FitPlan plan_lasting(const FitOptions& given) const;
  OptionalTime goal_of(const FitOptions& given, const Timestamp& from) const;
  OptionalTime end_of(const FitOptions& given, const FitPlan& plan, bool needs_limit) const;
  void check_intervals(const FitPlan& plan, bool gives_batches) const;
  void check_same_epoch(const FitPlan& plan) const;
  void check_step(const FitPlan& plan) const;
  const std::vector<EvalRun>& runs_of(const FitPlan& plan) const;
  const MetricSet& metrics_of_training(const FitPlan& plan) const;
};

}  // namespace composer
