// Of which weights a RunSaver's checkpoints have values, which of them is the best, and what is told where there is
// none.
#include <filesystem>
#include <utility>

#include <torch/version.h>

#include "composer/checkpoint/name_format.h"
#include "composer/checkpoint/run_saver.h"
#include "composer/core/direction.h"
#include "composer/core/error.h"
#include "composer/core/fit_outline.h"
#include "composer/core/run.h"
#include "composer/core/state.h"

namespace composer::saving {
namespace {

// Those that were measured on the weights of now: the others say nothing about a checkpoint of these.
std::map<std::string, double> current_metrics(const State& state) {
  std::map<std::string, double> metrics;
  for (const auto& [label, by_name] : state.metrics.all())
    for (const auto& [name, reported] : by_name)
      if (reported.is_current) metrics[join(label, '/', name)] = reported.value.item<double>();
  return metrics;
}

struct MetricName {
  std::string label, name;
};

MetricName split(const std::string& metric) {
  const auto slash = metric.find('/');
  if (slash == std::string::npos) return {.label = "", .name = metric};
  return {.label = metric.substr(0, slash), .name = metric.substr(slash + 1)};
}

}  // namespace

void check_best(std::string_view who, const Best& best, const FitOutline& fit, const State& state, bool settable) {
  const auto [label, name] = split(best.metric);
  if (label.empty()) throw ConfigError(who, ": its metric is \"", best.metric, "\", and must be LABEL/NAME");
  fit.check_better(who, best.better, label, name);
  if (fit.check_metric(who, label, name, state) || state.metrics.find(label, name)) return;
  const std::string text =
      join(who, ": its metric is \"", best.metric, "\", and no loader of this fit has the label \"", label,
           "\"; there are: ", fit.labels());
  if (!settable) throw ConfigError(text);
  warn(join(text, ". Until something sets it in state.metrics, no checkpoint is better than another"));
}

Manifest RunSaver::manifest(const std::string& name, const State& state) const {
  Manifest manifest;
  manifest.name = format_name(name, state.run_name, &state.timestamp);
  manifest.run_name = state.run_name;
  manifest.time = state.timestamp;
  manifest.program = owner_.program;
  manifest.weights_only = options_.weights_only;
  manifest.composer_version = COMPOSER_VERSION;
  manifest.libtorch_version = TORCH_VERSION;
  state.run->weights_version();  // values of others are not current from now on
  manifest.metrics = current_metrics(state);
  return manifest;
}

void RunSaver::note_step(const State& state) {
  if (evaluated_weights_ != 0) warn_of_lost_value(state);
  note_metrics(state);
}

void RunSaver::note_evaluation(const State& state) {
  note_metrics(state);
  if (!options_.best || !in_fit_) return;  // between two fits the program may measure what it likes
  const std::uint64_t weights = state.run->weights_version();
  const auto [label, name] = split(options_.best->metric);
  if (state.metrics.is_current(label, name)) evaluated_weights_ = weights;
}

void RunSaver::note_metrics(const State& state) {
  if (!saver_->lacks_value(state.timestamp.batch)) return;
  measured_weights_ = state.run->weights_version();
  const auto [label, name] = split(options_.best->metric);
  if (!state.metrics.is_current(label, name)) return;  // the others are not worth reading
  ask_direction(state);
  saver_->add_metrics(measured_weights_, current_metrics(state));
}

void RunSaver::note_trained(const State& state) {
  begun_weights_ = 0;
  if (!state.previous_timestamp || !saver_->lacks_value(state.previous_timestamp->batch)) return;
  const auto [label, name] = split(options_.best->metric);
  const auto of_label = state.metrics.all().find(label);
  if (label != state.dataloader_label || of_label == state.metrics.all().end()) return;
  const auto own = of_label->second.find(name);
  if (own == of_label->second.end() || !own->second.of_last_step) return;  // set by others, for other weights
  if (!options_.best->better && !saver_->has_direction())
    saver_->prefer(direction(owner_.names.name("best"), {}, state, label, name));
  std::map<std::string, double> metrics;
  for (const auto& [metric, reported] : of_label->second)
    if (reported.of_last_step) metrics[join(label, '/', metric)] = reported.value.item<double>();
  saver_->add_metrics(measured_weights_, metrics);
}

// Those that the program has set before it goes on are its own affair.
void RunSaver::warn_of_lost_value(const State& state) {
  const std::uint64_t evaluated = std::exchange(evaluated_weights_, 0);
  if (!in_fit_ || evaluated == begun_weights_ || saver_->has_weights(evaluated)) return;
  if (std::exchange(warned_of_lost_value_, true)) return;
  const std::string what = join(owner_.names.name("best"), ": ", options_.best->metric, " after batch ",
                                state.timestamp.batch, " is that of weights which no checkpoint has, because ");
  if (last_saved_batch_ == state.timestamp.batch)
    warn(join(what, "an algorithm has changed them, or those for evaluation, since ", newest(),
              " was saved. Such a checkpoint has no value, and is never the best. Save after the algorithm, with ",
              "save_interval = \"1ep\" if it acts at the end of epochs"));
  else
    warn(join(what, "none was saved there. Such a value makes no checkpoint the best. Save and evaluate at equal ",
              "intervals"));
}

void RunSaver::tell_changed(const State& state) const {
  const bool is_last = state.max_duration && state.timestamp.reached(*state.max_duration);
  if (!has_saved_ || !is_last || options_.save_interval.function() || state.timestamp.batch != last_saved_batch_)
    return;
  const std::uint64_t now = state.run->weights_version();
  if (now == saved_weights_ || saver_->has_weights(now)) return;
  warn(join(owner_.names.name("folder"), ": the weights were changed at FIT_END, after ", newest(), " was saved, so ",
            "no checkpoint has them; change them at EPOCH_END, or call save_checkpoint() after fit()"));
}

void RunSaver::tell_without_best(const State& state) const {
  if (!options_.best || !has_saved_ || warned_of_lost_value_ || saver_->has_value()) return;
  if (state.max_duration && !state.timestamp.reached(*state.max_duration)) return;  // the run goes on
  warn(join(owner_.names.name("best"), ": had no effect, because no checkpoint has a value of ", options_.best->metric,
            "; evaluate the model, and save it at the same interval"));
}

// What is declared, also later, corrects what was guessed. Who sets a metric by hand may not have done so yet.
void RunSaver::ask_direction(const State& state) {
  if (!options_.best || options_.best->better) return;
  const auto [label, name] = split(options_.best->metric);
  if (const auto declared = state.metrics.better(label, name)) return saver_->prefer(*declared);
  if (!saver_->has_direction() && state.metrics.is_current(label, name))
    saver_->prefer(direction(owner_.names.name("best"), {}, state, label, name));
}

std::optional<std::string> RunSaver::best_path(const State& state) {
  ask_direction(state);
  const Saved* const best = saver_->best();
  return best ? std::optional<std::string>(options().folder / best->name) : std::nullopt;
}

}  // namespace composer::saving
