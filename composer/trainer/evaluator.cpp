#include "composer/trainer/evaluator.h"

#include <set>

#include "composer/core/error.h"
#include "composer/trainer/call_options.h"
#include "composer/util/pattern.h"

namespace composer {
namespace {

void check_evaluator(const Evaluator& evaluator) {
  const std::string who = join("Evaluator ", evaluator.label, ": ");
  if (!evaluator.dataloader) throw ConfigError(who, "dataloader is required");
  check(evaluator, evaluator_options(), who, "");
  if (*evaluator.subset_num_batches == -1 && !evaluator.dataloader.dataloader->num_batches())
    throw ConfigError(who, "its loader does not know its length; say how many batches to take with ",
                      "subset_num_batches or eval_subset_num_batches");
  for (const std::string& pattern : evaluator.metric_names.value_or(std::vector<std::string>{}))
    static_cast<void>(util::Pattern(who + "metric_names", pattern));
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
