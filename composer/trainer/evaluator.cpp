#include "composer/trainer/evaluator.h"

#include <set>

#include "composer/core/error.h"
#include "composer/util/pattern.h"

namespace composer {
namespace {

void check_evaluator(const Evaluator& evaluator) {
  const auto& [label, dataloader, metrics, metric_names, interval, subset, microbatch] = evaluator;
  if (!dataloader) throw ConfigError("Evaluator ", label, ": dataloader is required");
  if (*subset < -1 || *subset == 0)
    throw ConfigError("Evaluator ", label, ": subset_num_batches must be >= 1, or -1 for all, got ", *subset);
  if (*subset == -1 && !dataloader.dataloader->num_batches())
    throw ConfigError("Evaluator ", label, ": its loader does not know its length; say how many batches to take with ",
                      "subset_num_batches or eval_subset_num_batches");
  if (microbatch && !microbatch->is_auto() && microbatch->samples() < 1)
    throw ConfigError("Evaluator ", label, ": device_eval_microbatch_size must be >= 1, or \"auto\", got ",
                      microbatch->samples());
  for (const std::string& pattern : metric_names.value_or(std::vector<std::string>{}))
    static_cast<void>(util::Pattern("Evaluator " + label + ": metric_names", pattern));
}

}  // namespace

Evaluators Evaluators::cut_to(std::int64_t subset) const {
  Evaluators cut = *this;
  if (subset != -1)
    for (Evaluator& evaluator : cut.list_) evaluator.subset_num_batches = subset;
  return cut;
}

std::vector<Evaluator> Evaluators::checked(std::int64_t default_subset) const {
  std::vector<Evaluator> list = list_;
  std::set<std::string> labels;
  for (int unnamed = 0; Evaluator & evaluator : list) {
    if (evaluator.label.empty()) evaluator.label = ++unnamed == 1 ? "eval" : join("eval_", unnamed);
    if (!labels.insert(evaluator.label).second)
      throw ConfigError("Evaluator: two have the label \"", evaluator.label, "\"; give each its own");
    evaluator.subset_num_batches = evaluator.subset_num_batches.value_or(default_subset);
    check_evaluator(evaluator);
  }
  return list;
}

}  // namespace composer
