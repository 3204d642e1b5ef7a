#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/grad_mode.h>

#include "composer/core/event.h"
#include "composer/core/interval.h"
#include "composer/core/model_access.h"
#include "composer/core/state.h"
#include "composer/core/state_dict.h"
#include "composer/step/eval_microbatch.h"
#include "composer/step/feed.h"
#include "composer/step/metric_set.h"
#include "composer/trainer/evaluator.h"

namespace composer {

class Ranks;

// An evaluator of a trainer, and when it was due.
struct EvalRun {
  Evaluator evaluator;
  Feed feed;
  Interval interval;
  MetricSet metrics;
  EvalMicrobatch microbatch = {};
  std::int64_t last_due_batch = -1;
  std::uint64_t weights = 0;  // version of the weights when it was last due
};

// Whether the interval may be due at different batches on different ranks, because each rank has its own clock and its
// own copy of a function.
bool differs_by_rank(const Interval& interval);

// The evaluators of a trainer: which are due, and which are pending. A pending evaluator was due without being
// evaluated to the end, because of a signal or an error; the resumed run evaluates it first.
class Evaluations {
 public:
  const std::vector<EvalRun>& runs() const { return runs_; }
  std::vector<EvalRun>& runs() { return runs_; }
  void replace(std::vector<EvalRun> runs) { runs_ = std::move(runs); }

  // The evaluators that are due. Every interval is called, so that stateful functions see every event; only the state
  // of these functions changes.
  // An evaluator that was due for a batch is due again at the end of training if the version of the weights has changed
  // since.
  std::vector<EvalRun*> due(Event event, IntervalMoment moment, const State& state, std::uint64_t weights = 0);
  // Replaces the evaluators that are due by those of rank 0 where the ranks could disagree, because all ranks take part
  // in an evaluation. `may_differ`: they can disagree whatever the intervals are.
  std::vector<EvalRun*> due_on_all_ranks(std::vector<EvalRun*> due, bool may_differ, const Ranks& ranks);
  void mark_due(const std::vector<EvalRun*>& runs, std::int64_t batch, std::uint64_t weights = 0);  // and also pending
  void done(const EvalRun& run);
  std::vector<EvalRun*> pending();
  bool has_pending() const { return !pending_.empty(); }
  // Whether values measured on `feed` are used to compare checkpoints: not if `feed` leaves out data of `run`, or is
  // not the data that the trainer evaluates under this label.
  bool judges(const EvalRun& run, const Feed& feed, bool is_cut, const Ranks& ranks) const;
  // The metric of an evaluator with what its last evaluation has measured. Throws ConfigError if there is none.
  const Metric& metric(std::string_view label, std::string_view name) const;
  // Keeps the metrics of evaluators that were given to one call, for metric(); replaces those of the call before.
  void keep_metrics(std::vector<EvalRun> given);
  // The metrics of training and of all evaluators.
  void declare_metrics(const MetricSet& of_training, State& state) const;
  void count_from_zero();  // after a reset of time: no evaluator has been due yet

  void visit_pending(StateVisitor& visit) { visit("pending_evaluations", pending_); }
  // When each evaluator was last due, for the given version of the weights, which is saved or was loaded.
  void visit_evaluated(StateVisitor& visit, std::uint64_t weights);

 private:
  std::vector<EvalRun> runs_;
  std::vector<MetricSet> given_;      // of the last call of eval() with evaluators of its own
  std::vector<std::string> pending_;  // labels of pending evaluators
};

// Prepares the state for reading a loader other than the training one: evaluation mode, no gradients. The destructor
// restores the training loader, batch, outputs and each module's mode, also after an exception.
class EvaluationScope {
 public:
  EvaluationScope(State& state, const Feed& feed);
  ~EvaluationScope();
  EvaluationScope(const EvaluationScope&) = delete;
  EvaluationScope& operator=(const EvaluationScope&) = delete;

 private:
  data::LoaderLease lease_;
  State& state_;
  at::NoGradGuard no_grad_;
  std::string label_;
  std::optional<std::int64_t> len_;
  bool had_loader_;
  ModuleModes modes_;
  Batch batch_;
  Outputs outputs_;
};

}  // namespace composer
