#include "composer/trainer/evaluations.h"

#include <algorithm>
#include <map>
#include <utility>

#include "composer/core/error.h"
#include "composer/core/listed.h"
#include "composer/core/model_access.h"
#include "composer/trainer/ranks.h"

namespace composer {

bool differs_by_rank(const Interval& interval) {
  return interval.function() != nullptr || interval.time().unit() == TimeUnit::SECOND;
}

std::vector<EvalRun*> Evaluations::due(Event event, IntervalMoment moment, const State& state, std::uint64_t weights) {
  std::vector<EvalRun*> due;
  for (EvalRun& run : runs_) {
    moment.last_due_batch = run.weights == weights ? run.last_due_batch : -1;
    if (is_due(run.interval, event, state, moment)) due.push_back(&run);
  }
  return due;
}

std::vector<EvalRun*> Evaluations::due_on_all_ranks(std::vector<EvalRun*> due, bool may_differ, const Ranks& ranks) {
  may_differ = may_differ || std::ranges::any_of(runs_, differs_by_rank, &EvalRun::interval);
  if (ranks.alone() || !may_differ) return due;
  std::string marks;
  for (EvalRun& run : runs_) marks += std::ranges::count(due, &run) > 0 ? '1' : '0';
  marks = ranks.same(marks);
  due.clear();
  for (std::size_t i = 0; i < runs_.size(); ++i)
    if (marks[i] == '1') due.push_back(&runs_[i]);
  return due;
}

void Evaluations::mark_due(const std::vector<EvalRun*>& runs, std::int64_t batch, std::uint64_t weights) {
  for (EvalRun* run : runs) {
    run->last_due_batch = batch;
    run->weights = weights;
    if (std::ranges::count(pending_, run->feed.label()) == 0) pending_.push_back(run->feed.label());
  }
}

void Evaluations::done(const EvalRun& run) { std::erase(pending_, run.feed.label()); }

std::vector<EvalRun*> Evaluations::pending() {
  std::erase_if(pending_, [this](const std::string& label) {  // an evaluator may have been replaced
    return std::ranges::none_of(runs_, [&](const EvalRun& run) { return run.feed.label() == label; });
  });
  std::vector<EvalRun*> pending;
  for (EvalRun& run : runs_)
    if (std::ranges::count(pending_, run.feed.label()) > 0) pending.push_back(&run);
  return pending;
}

bool Evaluations::judges(const EvalRun& run, const Feed& feed, bool is_cut, const Ranks& ranks) const {
  const bool is_own = std::ranges::any_of(runs_, [&](const EvalRun& own) { return &own == &run; });
  const auto has_label = [&](const EvalRun& own) { return own.feed.label() == run.feed.label(); };
  if (!is_own && std::ranges::any_of(runs_, has_label)) return false;
  const auto all = is_own ? run.feed.num_batches() : run.feed.loader()->num_batches();
  return !ranks.any(is_cut && feed.num_batches() != all);
}

const Metric& Evaluations::metric(std::string_view label, std::string_view name) const {
  std::vector<const MetricSet*> sets;
  for (const MetricSet& set : given_) sets.push_back(&set);
  for (const EvalRun& run : runs_) sets.push_back(&run.metrics);
  const auto label_of = [](const MetricSet* set) { return set->label(); };
  const auto found = std::ranges::find(sets, label, label_of);
  if (found == sets.end())
    throw ConfigError("metric(): there is no evaluator \"", label,
                      "\"; there are: ", sets.empty() ? "none" : listed(sets, label_of));
  return (*found)->metric(name);
}

void Evaluations::keep_metrics(std::vector<EvalRun> given) {
  given_.clear();
  for (EvalRun& run : given) given_.push_back(std::move(run.metrics));
}

void Evaluations::declare_metrics(const MetricSet& of_training, State& state) const {
  of_training.declare(state);
  for (const EvalRun& run : runs_) run.metrics.declare(state);
}

void Evaluations::count_from_zero() {
  pending_.clear();
  for (EvalRun& run : runs_) run.last_due_batch = -1;
}

void Evaluations::visit_evaluated(StateVisitor& visit, std::uint64_t weights) {
  std::map<std::string, std::int64_t> evaluated;  // batch at which each was last due, by label
  for (const EvalRun& run : runs_) evaluated[run.feed.label()] = run.weights == weights ? run.last_due_batch : -1;
  visit("evaluated", evaluated);
  if (!visit.is_loading()) return;
  for (EvalRun& run : runs_)
    if (const auto it = evaluated.find(run.feed.label()); it != evaluated.end()) run.last_due_batch = it->second;
  for (EvalRun& run : runs_) run.weights = weights;
}

EvaluationScope::EvaluationScope(State& state, const Feed& feed)
    : lease_(feed.lease()),
      state_(state),
      label_(std::exchange(state.dataloader_label, feed.label())),
      len_(std::exchange(state.dataloader_len, feed.num_batches())),
      had_loader_(std::exchange(state.has_dataloader, true)),
      modes_(as_module(*state.model)),
      batch_(state.batch),
      outputs_(std::exchange(state.outputs, {})) {
  set_training(as_module(*state.model), false);
}

EvaluationScope::~EvaluationScope() {
  state_.dataloader_label = std::move(label_);
  state_.dataloader_len = len_;
  state_.has_dataloader = had_loader_;
  state_.batch = std::move(batch_);
  state_.outputs = std::move(outputs_);
  modes_.restore();
}

}  // namespace composer
