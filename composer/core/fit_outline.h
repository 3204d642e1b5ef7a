#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "composer/core/export.h"
#include "composer/core/interval.h"
#include "composer/core/metric.h"
#include "composer/core/time.h"

namespace composer {

struct State;

// Describes a fit before it begins, for plug-ins that check their options against it (Callback::check_fit).
struct COMPOSER_EXPORT FitOutline {
  struct Source {
    std::string label;  // label of the training batches or of an evaluator
    std::vector<std::string> metrics;
    std::vector<Better> better = {};  // for each metric, which values are better
  };
  std::vector<Source> sources;  // the training batches first
  // False: the fit has no loader. Batches are given to Trainer::step(batch), and belong to one endless epoch.
  bool epochs_end = true;
  // What is divided among ranks. 1: the optimizer's state; 2: also the final gradients; 0: nothing.
  std::int64_t zero_stage = 0;

  const Source* find(std::string_view label) const;
  bool trains_under(std::string_view label) const { return !sources.empty() && sources.front().label == label; }

  // Returns false if no source has this label. Throws ConfigError if a source has it, but no metric with this name. A
  // metric in the state counts as a metric of the source, because algorithms may set metrics themselves.
  bool check_metric(std::string_view who, std::string_view label, std::string_view name, const State& state) const;

  // Warns if the option `better` contradicts the metric's declaration. Does nothing if the option is unset.
  void check_better(std::string_view who, std::optional<Better> given, std::string_view label,
                    std::string_view name) const;

  // Checks a time that is counted at the end of epochs, for a fit whose epochs never end: throws ConfigError, or warns
  // if the time is the option's default. `effect` states the consequence, as in "so no checkpoint is written before
  // end()".
  void check_epochs(std::string_view option, Time time, Time by_default, std::string_view effect,
                    const State& state) const;

  // Like check_epochs(), for an interval with the default "1ep". An interval that is a function, or is never due, is
  // accepted.
  void check_interval(std::string_view option, const Interval& interval, std::string_view effect,
                      const State& state) const;

  std::string labels() const;  // "train, eval"
};

}  // namespace composer
