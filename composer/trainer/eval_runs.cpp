#include "composer/trainer/eval_runs.h"

#include "composer/core/model_access.h"
#include "composer/core/state.h"
#include "composer/trainer/ranks.h"

namespace composer {

std::vector<EvalRun> eval_runs(const Evaluators& evaluators, const Interval& interval, std::int64_t subset_num_batches,
                               const State& state, const Ranks& ranks, std::int64_t memory) {
  std::vector<EvalRun> runs;
  for (Evaluator& evaluator : evaluators.checked(subset_num_batches)) {
    const Metrics metrics = evaluator.metrics ? *evaluator.metrics : metrics_of(*state.model, /*is_train=*/false);
    const MicrobatchSize at_once = evaluator.device_eval_microbatch_size.value_or(0);
    runs.push_back({.evaluator = evaluator,
                    .feed = ranks.feed(evaluator.dataloader, evaluator.label, *evaluator.subset_num_batches),
                    .interval = evaluator.eval_interval.value_or(interval),
                    .metrics = MetricSet(metrics, evaluator.label, evaluator.metric_names),
                    .microbatch = EvalMicrobatch(evaluator.label, at_once, memory)});
    if (at_once.is_auto()) runs.back().metrics.check_have_sums();
  }
  return runs;
}  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks): it loses sight of the function that the interval owns

std::vector<std::string> labels_of(const std::vector<EvalRun>& runs) {
  std::vector<std::string> labels;
  labels.reserve(runs.size());
  for (const EvalRun& run : runs) labels.push_back(run.feed.label());
  return labels;
}

}  // namespace composer
