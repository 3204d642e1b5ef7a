#include "composer/step/metric_set.h"

#include <algorithm>
#include <typeinfo>

#include <ATen/core/Tensor.h>

#include "composer/core/error.h"
#include "composer/core/listed.h"
#include "composer/core/model_access.h"
#include "composer/core/plugins.h"
#include "composer/core/state.h"
#include "composer/core/state_dict.h"
#include "composer/util/pattern.h"

namespace composer {
namespace {

bool matches(const std::string& metric, const std::string& pattern) {
  return util::Pattern("metric_names", pattern, util::Pattern::Case::IGNORED).is_in(metric);
}

bool selected(const std::string& metric, const std::vector<std::string>& patterns) {
  return std::ranges::any_of(patterns, [&](const std::string& pattern) { return matches(metric, pattern); });
}

void check(const Metrics& metrics, const std::string& label) {
  for (int index = 0; const auto& metric : metrics) {
    if (!metric) throw ConfigError("metrics of ", label, ": the one at index ", index, " is null");
    ++index;
  }
}

// Throws ConfigError for a pattern that matches no metric: it is probably misspelled.
void check_patterns(const std::vector<std::string>& patterns, const Metrics& metrics, const std::string& label) {
  for (const std::string& pattern : patterns) {
    const auto fits = [&](const auto& metric) { return matches(metric->name(), pattern); };
    if (std::ranges::none_of(metrics, fits))
      throw ConfigError("metrics of ", label, ": metric_names has \"", pattern, "\", which matches none of: ",
                        listed(metrics, [](const auto& metric) { return metric->name(); }));
  }
}

}  // namespace

MetricSet::MetricSet(const Metrics& metrics, std::string label, const std::optional<std::vector<std::string>>& names)
    : label_(std::move(label)) {
  check(metrics, label_);
  if (names) check_patterns(*names, metrics, label_);
  for (const auto& metric : metrics) {
    const std::string name = metric->name();
    if (names && !selected(name, *names)) continue;
    for (const Entry& other : list_)
      if (other.name == name)
        throw ConfigError("metrics of ", label_, ": two are called ", name, "; give one of them another name");
    list_.push_back({metric->fresh(), name, join("metrics/", label_, "/", name)});
    Entry& entry = list_.back();
    if (!entry.metric) throw ConfigError("metrics of ", label_, ": fresh() of ", name, " returned a null pointer");
    entry.several = dynamic_cast<const HasSeveralValues*>(entry.metric.get());
    if (!entry.several) continue;
    for (const std::string& value : entry.several->value_names())
      entry.values.push_back({join(name, '/', value), join(entry.key, '/', value)});
  }
}

void MetricSet::check_have_sums() const {
  for (const Entry& entry : list_) MetricSums::check(*entry.metric);
}

MetricSet::Kept MetricSet::kept() const {
  Kept kept;
  for (const Entry& entry : list_) {
    entry.metric->visit_sums(
        [&](std::string_view, at::Tensor& sum) { kept.sums.push_back(sum.defined() ? sum.clone() : at::Tensor()); });
    if (auto* keeper = dynamic_cast<KeepsRows*>(entry.metric.get()))
      keeper->visit_rows([&](std::string_view, std::vector<at::Tensor>& rows) { kept.rows.push_back(rows); });
  }
  return kept;
}

void MetricSet::restore(const Kept& kept) {
  auto next_sum = kept.sums.begin();
  auto next_rows = kept.rows.begin();
  for (const Entry& entry : list_) {
    entry.metric->visit_sums([&](std::string_view, at::Tensor& sum) {  // a copy, because sums grow in place
      const at::Tensor& before = *next_sum++;
      sum = before.defined() ? before.clone() : at::Tensor();
    });
    if (auto* keeper = dynamic_cast<KeepsRows*>(entry.metric.get()))
      keeper->visit_rows([&](std::string_view, std::vector<at::Tensor>& rows) { rows = *next_rows++; });
  }
}

const Metric& MetricSet::metric(std::string_view name) const {
  const auto found = std::ranges::find(list_, name, &Entry::name);
  if (found == list_.end())
    throw ConfigError("metrics of ", label_, ": there is none called \"", name,
                      "\"; there are: ", list_.empty() ? "none" : listed(list_, &Entry::name));
  if (report_.empty()) throw ConfigError("metrics of ", label_, ": \"", name, "\" has measured nothing yet");
  return *found->metric;
}

std::vector<std::string> MetricSet::names() const {
  std::vector<std::string> names;
  names.reserve(list_.size());
  for (const Entry& entry : list_) {
    names.push_back(entry.name);
    for (const Value& value : entry.values) names.push_back(value.name);
  }
  return names;
}

StateDict MetricSet::local_hparams() const {
  StateDict all;
  for (const Entry& entry : list_) {
    const Metric& metric = *entry.metric;
    all[entry.name + "/class"] = class_name(typeid(metric));
    const StateDict own = metric.local_hparams();
    for (const auto& [option, value] : own.entries()) all[join(entry.name, '/', option)] = value;
  }
  return all;
}

FitOutline::Source MetricSet::source() const {
  FitOutline::Source source{.label = label_, .metrics = names()};
  for (const Entry& entry : list_)
    source.better.insert(source.better.end(), 1 + entry.values.size(), entry.metric->better());
  return source;
}

void MetricSet::declare(State& state) const {
  for (const Entry& entry : list_) {
    state.metrics.declare(label_, entry.name, entry.metric->better());
    for (const Value& value : entry.values) state.metrics.declare(label_, value.name, entry.metric->better());
  }
}

void MetricSet::reset() {
  updated_ = false;
  for (const Entry& entry : list_) entry.metric->reset();
}

void MetricSet::update(Model& model, const Batch& batch, const Outputs& outputs) {
  updated_ = true;
  for (const Entry& entry : list_) update_metric(model, batch, outputs, *entry.metric);
}

void MetricSet::report(State& state, Logger& logger, bool keep_if_empty, dist::World* world) {
  if (list_.empty()) return;
  const bool updated = std::exchange(updated_, false);
  if (!world) {
    compute(state, logger, keep_if_empty && !updated);
    if (updated && !keep_if_empty) log_content(logger);
    return;
  }
  std::vector<std::shared_ptr<Metric>> metrics;
  metrics.reserve(list_.size());
  for (const Entry& entry : list_) metrics.push_back(entry.metric);
  MetricSums::OverRanks all(sums_, *world, metrics, updated, state.device);
  if (!keep_if_empty) all.stay();
  compute(state, logger, keep_if_empty && !all.updated());
  if (all.updated() && !keep_if_empty) log_content(logger);
}

void MetricSet::compute(State& state, Logger& logger, bool keep) {
  report_.clear();
  for (const Entry& entry : list_) {
    const at::Tensor* before = keep ? state.metrics.find(label_, entry.name) : nullptr;
    at::Tensor value = before ? *before : entry.metric->compute();
    if (!value.defined())
      throw ConfigError("metric ", label_, "/", entry.name, ": compute() returned an undefined tensor");
    if (value.dim() != 0)
      throw ConfigError("metric ", label_, "/", entry.name, ": compute() must return a 0-d tensor, got ",
                        value.sizes());
    report_.push_back({entry.key, value});
    if (!before) state.metrics.set(label_, entry.name, std::move(value), entry.metric->better());
    if (!entry.values.empty()) compute_values(entry, state, keep);
  }
  logger.log_metrics(report_);
}

void MetricSet::compute_values(const Entry& entry, State& state, bool keep) {
  std::vector<at::Tensor> values;
  for (const Value& value : entry.values) {
    const at::Tensor* before = keep ? state.metrics.find(label_, value.name) : nullptr;
    if (before) values.push_back(*before);
  }
  const bool are_new = values.size() != entry.values.size();
  if (are_new) {
    const at::Tensor computed = entry.several->compute_values();
    if (!computed.defined() || computed.dim() != 1 ||
        computed.size(0) != static_cast<std::int64_t>(entry.values.size()))
      throw ConfigError("metric ", label_, "/", entry.name, ": compute_values() must return a tensor [",
                        entry.values.size(), "], one value for each name, got ",
                        computed.defined() ? join(computed.sizes()) : "an undefined tensor");
    values = computed.unbind(0);
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    report_.push_back({entry.values[i].key, values[i]});
    if (are_new) state.metrics.set(label_, entry.values[i].name, values[i], entry.metric->better());
  }
}

void MetricSet::log_content(Logger& logger) const {
  if (logger.empty()) return;
  for (const Entry& entry : list_)
    if (const auto* content = dynamic_cast<const LogsContent*>(entry.metric.get()))
      for (const auto& [part, logged] : content->content()) logger.log(join(entry.key, '/', part), logged);
}

}  // namespace composer
