#pragma once
#include <cstdint>
#include <optional>
#include <string>
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

// An evaluator while a trainer has it.
struct EvalRun {
  Evaluator evaluator;
  Feed feed;
  Interval interval;
  MetricSet metrics;
  EvalMicrobatch microbatch = {};
  std::int64_t last_due_batch = -1;
  std::uint64_t weights = 0;  // their version then
};

// Whether the interval may be due at different batches on several ranks, because each has a clock and a function of its
// own.
bool differs_by_rank(const Interval& interval);

// The evaluators of a trainer: which are due, and which have been due without being evaluated to their end, because a
// signal or an error came first. Those are pending, and who goes on makes up for them.
class Evaluations {
 public:
  const std::vector<EvalRun>& runs() const { return runs_; }
  std::vector<EvalRun>& runs() { return runs_; }
  void replace(std::vector<EvalRun> runs) { runs_ = std::move(runs); }

  // Each is asked, so that functions with a memory hear of every event. Nothing changes but their memory.
  // What was due for a batch is due again at the end of training if the weights have another version since.
  std::vector<EvalRun*> due(Event event, IntervalMoment moment, const State& state, std::uint64_t weights = 0);
  // Those of rank 0, where ranks could have different answers (`may_differ`: they have, whatever the intervals are):
  // evaluations need all of them.
  std::vector<EvalRun*> due_on_all_ranks(std::vector<EvalRun*> due, bool may_differ, const Ranks& ranks);
  void mark_due(const std::vector<EvalRun*>& runs, std::int64_t batch, std::uint64_t weights = 0);  // and pending
  void done(const EvalRun& run);
  std::vector<EvalRun*> pending();
  bool has_pending() const { return !pending_.empty(); }
  // Whether what is measured on `feed` judges checkpoints: not if that leaves out some of the data of `run`, or if they
  // are others than those which the trainer evaluates under this label.
  bool judges(const EvalRun& run, const Feed& feed, bool is_cut, const Ranks& ranks) const;
  void declare_metrics(const MetricSet& of_training, State& state) const;  // these, and those of all evaluators
  void count_from_zero();                                                  // time was reset: nothing has been due yet

  void visit_pending(StateVisitor& visit) { visit("pending_evaluations", pending_); }
  // When each was due last, for these weights: those that are saved, or that were loaded.
  void visit_evaluated(StateVisitor& visit, std::uint64_t weights);

 private:
  std::vector<EvalRun> runs_;
  std::vector<std::string> pending_;  // labels
};

// The state while another loader than the training one is read: evaluation mode, no gradients. The end of the scope
// brings back the training loader, batch, outputs and each module's mode, also after an exception.
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
