#include "composer/checkpoint/measured_values.h"

#include <string_view>
#include <utility>

#include "composer/checkpoint/run_saver.h"
#include "composer/checkpoint/save_schedule.h"
#include "composer/checkpoint/saved_list.h"
#include "composer/core/direction.h"
#include "composer/core/error.h"
#include "composer/core/fit_outline.h"
#include "composer/core/run.h"
#include "composer/core/state.h"

namespace composer::saving {
namespace {

struct MetricName {
  std::string label, name;
};

MetricName split(const std::string& metric) {
  const auto slash = metric.find('/');
  if (slash == std::string::npos) return {.label = "", .name = metric};
  return {.label = metric.substr(0, slash), .name = metric.substr(slash + 1)};
}

}  // namespace

std::map<std::string, double> current_metrics(const State& state) {
  std::map<std::string, double> metrics;
  for (const auto& [label, by_name] : state.metrics.all())
    for (const auto& [name, reported] : by_name)
      if (reported.is_current) metrics[join(label, '/', name)] = reported.value.item<double>();
  return metrics;
}

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

MeasuredValues::MeasuredValues(SavedList& list, const SaveSchedule& schedule, std::optional<Best> best,
                               OptionNames names)
    : list_(&list), schedule_(&schedule), best_(std::move(best)), names_(names) {}

void MeasuredValues::prefer(Better better) {
  if (best_ && !best_->better) list_->metric().prefer(better);
}

// Guesses only when the metric has a value: a metric set by hand may not have been set yet.
void MeasuredValues::ask_direction(const State& state) {
  if (!best_ || best_->better) return;
  const auto [label, name] = split(best_->metric);
  if (const auto declared = state.metrics.better(label, name)) return list_->metric().prefer(*declared);
  if (!list_->metric().better() && state.metrics.is_current(label, name))
    list_->metric().prefer(direction(names_.name("best"), {}, state, label, name));
}

bool MeasuredValues::is_current(const State& state) const {
  const auto [label, name] = split(best_->metric);
  return state.metrics.is_current(label, name);
}

void MeasuredValues::before_step(const State& state) {
  if (schedule_ && schedule_->in_fit() && evaluated_ != 0) warn_of_lost_value(state);
  take_metrics(state);
}

void MeasuredValues::after_evaluation(const State& state) {
  if (!best_) return;
  take_metrics(state);
  if (!schedule_->in_fit()) return;
  const std::uint64_t weights = state.run->weights_version();
  if (is_current(state)) evaluated_ = weights;
}

void MeasuredValues::take_metrics(const State& state) {
  if (!best_ || !list_->lacks_value(state.timestamp.batch)) return;
  measured_ = state.run->weights_version();
  if (!is_current(state)) return;  // other values are not needed
  ask_direction(state);
  list_->add_metrics(measured_, current_metrics(state));
}

void MeasuredValues::after_step(const State& state) {
  program_weights_ = 0;
  if (!best_ || !state.previous_timestamp || !list_->lacks_value(state.previous_timestamp->batch)) return;
  const auto [label, name] = split(best_->metric);
  const auto of_label = state.metrics.all().find(label);
  if (label != state.dataloader_label || of_label == state.metrics.all().end()) return;
  const auto own = of_label->second.find(name);
  if (own == of_label->second.end() || !own->second.of_last_step) return;  // set by others, for other weights
  if (!best_->better && !list_->metric().better())
    list_->metric().prefer(direction(names_.name("best"), {}, state, label, name));
  std::map<std::string, double> metrics;
  for (const auto& [metric, reported] : of_label->second)
    if (reported.of_last_step) metrics[join(label, '/', metric)] = reported.value.item<double>();
  list_->add_metrics(measured_, metrics);
}

void MeasuredValues::note_resumed(const State& state, std::uint64_t loaded) {
  const std::uint64_t now = state.run->weights_version();
  program_weights_ = now == loaded ? 0 : now;
}

// Does not warn about weights that the program has set before a resumed run trains.
void MeasuredValues::warn_of_lost_value(const State& state) {
  const std::uint64_t evaluated = std::exchange(evaluated_, 0);
  if (evaluated == program_weights_ || list_->has_weights(evaluated)) return;
  if (std::exchange(warned_, true)) return;
  const std::string what = join(names_.name("best"), ": ", best_->metric, " after batch ", state.timestamp.batch,
                                " is that of weights which no checkpoint has, because ");
  if (schedule_->last_batch() == state.timestamp.batch)
    warn(join(what, "an algorithm has changed them, or those for evaluation, since ", list_->newest(),
              " was saved. Such a checkpoint has no value, and is never the best. Save after the algorithm, with ",
              "save_interval = \"1ep\" if it acts at the end of epochs"));
  else
    warn(join(what, "none was saved there. Such a value makes no checkpoint the best. Save and evaluate at equal ",
              "intervals"));
}

void MeasuredValues::warn_without_best(const State& state) const {
  if (!best_ || warned_ || list_->has_value()) return;
  if (state.max_duration && !state.timestamp.reached(*state.max_duration)) return;  // the run continues
  warn(join(names_.name("best"), ": had no effect, because no checkpoint has a value of ", best_->metric,
            "; evaluate the model, and save it at the same interval"));
}

}  // namespace composer::saving
