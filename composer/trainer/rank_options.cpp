// The descriptions of options decide which of them ranks compare, and say why the others may differ.
#include "composer/trainer/rank_options.h"

#include <string>
#include <utility>
#include <vector>

#include "composer/core/listed.h"
#include "composer/core/model_access.h"
#include "composer/core/state_dict.h"
#include "composer/step/metric_set.h"
#include "composer/step/model_settings.h"
#include "composer/trainer/evaluations.h"
#include "composer/trainer/fit_plan.h"
#include "composer/trainer/ranks.h"
#include "composer/trainer/trainer_options.h"
#include "composer/util/exact_text.h"

namespace composer {
namespace {

// Lines of the form "name = value".
struct ComparedLines {
  void add(std::string_view name, const auto& value) { lines.push_back(join(name, " = ", value)); }
  std::vector<std::string> lines;
};

std::string count_text(std::optional<std::int64_t> count) { return count ? std::to_string(*count) : "unknown"; }

// Adds lines such as "eval/MulticlassAccuracy/top_k = 1".
void add_options(ComparedLines& compared, const std::string& label, const MetricSet& metrics) {
  const StateDict all = metrics.local_hparams();
  for (const auto& [name, value] : all.entries()) compared.add(join("metric ", label, '/', name), text_of(value));
}

// Ranks with their own loaders may split their batches differently.
bool is_compared(Compared when, bool splits) {
  return when == Compared::AT_FIT || when == Compared::AT_BOTH || (when == Compared::IF_SPLIT && splits);
}

// If ranks have slices of the same batches, all have the same number of batches.
void add_evaluators(ComparedLines& compared, const std::vector<EvalRun>& runs, bool splits) {
  for (const EvalRun& run : runs) {
    const std::string label = run.feed.label();
    compared.add("evaluator", join(label, ", every ", run.interval.function() ? "?" : to_string(run.interval),
                                   ", with ", listed(run.metrics.names())));
    add_options(compared, label, run.metrics);
    if (!splits) continue;
    compared.add(join("batch size of evaluator ", label), count_text(run.feed.batch_size()));
    compared.add(join("batches of evaluator ", label), count_text(run.feed.num_batches()));
  }
}

}  // namespace

void check_same_options(const Ranks& ranks, const TrainerOptions& options, const InRun& run) {
  if (ranks.alone()) return;
  ComparedLines compared;
  for (const Option<TrainerOptions>& option : trainer_options()) {
    if (option.rules.compared != Compared::AT_INIT && option.rules.compared != Compared::AT_BOTH) continue;
    StateDict told;
    option.tell_to(told, options, run);
    for (const auto& [name, value] : std::as_const(told).entries()) {
      const std::string given = text_of(value), of_first = option.rules.left_to_first ? ranks.same(given) : "";
      compared.add(name, given.empty() ? of_first : given);
    }
  }
  ranks.check_same("options", compared.lines);
}

void check_same_fit(const Ranks& ranks, FitHistory::Remaining remaining, std::int64_t number) {
  if (ranks.alone()) return;
  ComparedLines compared;
  compared.add("call", "fit()");
  compared.add("fits that were begun", number);
  compared.add("this one", remaining == FitHistory::Remaining::NOTHING
                               ? "returns at once, because it had ended or a signal has ended the program"
                           : remaining == FitHistory::Remaining::REST ? "goes on"
                                                                      : "begins");
  ranks.check_same("fit", compared.lines);
}

void check_same_plan(const Ranks& ranks, const FitPlan& plan, const Planned& planned) {
  const TrainerOptions& options = planned.options;
  if (ranks.alone()) return;
  ComparedLines compared;
  for (const Option<TrainerOptions>& option : trainer_options()) {
    if (!is_compared(option.rules.compared, ranks.splits())) continue;
    StateDict told;
    option.tell_to(told, options, {planned.state, plan.feed, /*made_lr=*/{}});
    for (const auto& [name, value] : std::as_const(told).entries()) compared.add(name, text_of(value));
  }
  compared.add("max_duration", plan.until ? to_string(*plan.until) : "none");
  compared.add("timestamp", join("epoch ", plan.from.epoch, ", batch ", plan.from.batch));
  compared.add("precision of this fit", to_string(plan.precision));
  const bool is_auto = plan.microbatch_size.value_or(options.device_train_microbatch_size).is_auto();
  compared.add("device_train_microbatch_size", is_auto ? "auto" : "a number");
  compared.add("train_dataloader_label", plan.feed ? plan.feed.label() : options.train_dataloader_label);
  if (ranks.splits() && plan.feed.num_batches()) compared.add("batches in train_dataloader", *plan.feed.num_batches());
  compared.add("metrics of training", listed(planned.metrics.names()));
  add_options(compared, "train", planned.metrics);
  compared.add("learning rates", listed(plan.rates.base(), [](double rate) { return util::exact_text(rate); }));
  compared.add("factors of schedulers", plan.rates.schedules().outline(plan.from, plan.until, plan.feed.num_batches()));
  add_evaluators(compared, planned.runs, ranks.splits());
  if (ranks.zero_stage() > 0) compared.add("save_folder", planned.saved_by_all ? "set" : "none, or save_weights_only");
  if (ranks.shards_checkpoints()) compared.add("save_ignore_keys", listed(options.save_ignore_keys));
  for (std::string& line : planned.settings.now(as_module(*planned.state.model)).lines())
    compared.lines.push_back(std::move(line));
  ranks.check_same("options", compared.lines);
}

void check_same_evaluation(const Ranks& ranks, const std::vector<EvalRun>& runs, std::int64_t subset_num_batches) {
  if (ranks.alone()) return;
  ComparedLines compared;
  compared.add("call", "eval()");
  // Otherwise each rank has its own batches.
  if (ranks.splits()) compared.add("subset_num_batches", subset_num_batches);
  add_evaluators(compared, runs, ranks.splits());
  ranks.check_same("eval", compared.lines);
}

void check_same_prediction(const Ranks& ranks, const Feed& feed) {
  if (ranks.alone()) return;
  ComparedLines compared;
  compared.add("call", "predict()");
  if (ranks.splits()) {
    compared.add("batch size", count_text(feed.batch_size()));
    compared.add("batches", count_text(feed.num_batches()));
  }
  ranks.check_same("predict", compared.lines);
}

}  // namespace composer
