#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "composer/core/event.h"
#include "composer/core/tensors.h"
#include "composer/trainer/evaluation_forward.h"
#include "composer/trainer/evaluations.h"
#include "composer/trainer/fit.h"
#include "composer/trainer/joined_outputs.h"

namespace composer {

struct State;
class Checkpoints;
class Events;
class LearningRates;
class Logger;
class Ranks;
class ReplicaCheck;
class Stopping;
class TrainingTime;
class WeightsInUse;

// Evaluates and predicts, and fires the events of both. Both may be called within a fit, which then continues as if
// nothing had happened.
class EvaluationLoop {
 public:
  // The parts of the trainer that it uses.
  struct Needs {
    State& state;
    Logger& logger;
    const Ranks& ranks;
    Events& events;
    Evaluations& evaluators;
    WeightsInUse& weights_in_use;
    const ReplicaCheck& replicas;
    LearningRates& rates;
    Checkpoints& checkpoints;
    const TrainingTime& time;
    Stopping& stopping;
    std::optional<Fit>& fit;  // the fit that is open, if any
  };
  EvaluationLoop(const Needs& needs, ForwardPlan forward) : needs_(needs), forward_(std::move(forward)) {}

  // The trainer's evaluators that are to run at this event, on all ranks. Evaluators that are due but are prevented by
  // a signal or an error become pending.
  std::vector<EvalRun*> take_due(Event event);
  void run(const std::vector<EvalRun*>& due);
  // An evaluation that the program or a callback requests. `to_the_end`: signals do not interrupt it.
  void eval(std::vector<EvalRun>& runs, std::int64_t subset_num_batches, bool to_the_end);
  // Returns an entry for each batch, which is empty where this rank has no sample of it.
  std::vector<PredictedBatch> predict(Feed feed, bool return_outputs);

  bool is_evaluating() const { return is_evaluating_; }
  bool is_predicting() const { return is_predicting_; }

 private:
  class Session;
  struct How {
    std::int64_t call = 0;
    bool judges = true;  // whether its values compare checkpoints
    bool to_the_end = false;
  };
  std::vector<EvalRun*> due(Event event);
  bool evaluate(EvalRun& run, Feed& feed, How how);
  void evaluate_batch(EvalRun& run, const Feed& feed, EvaluationForward& forward);
  bool next_batch(Feed& feed, const Timestamp& timestamp);
  void count_batch(const Feed& feed, Timestamp& timestamp);
  std::int64_t next_call();

  Needs needs_;
  ForwardPlan forward_;
  Stopwatch stopwatch_;
  bool is_evaluating_ = false, is_predicting_ = false;
  // Several calls at one batch draw different random numbers: the batch of the last call, and the number of calls at
  // that batch.
  std::int64_t batch_of_calls_ = -1, calls_ = 0;
};

}  // namespace composer
