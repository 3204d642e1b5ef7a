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

// What a fit will have, as known before it begins: for plug-ins that check their options against it
// (Callback::check_fit).
struct COMPOSER_EXPORT FitOutline {
  struct Source {
    std::string label;  // of the training batches or of an evaluator
    std::vector<std::string> metrics;
    std::vector<Better> better = {};  // of each metric
  };
  std::vector<Source> sources;  // the training batches first
  // False: the fit has no loader. Its batches are given to Trainer::step(batch) and belong to one endless epoch.
  bool epochs_end = true;
  // What each rank has alone: 1: the optimizer's state of some parameters, 2: also their final gradients. 0: nothing.
  std::int64_t zero_stage = 0;

  const Source* find(std::string_view label) const;
  bool trains_under(std::string_view label) const { return !sources.empty() && sources.front().label == label; }

  // Throws ConfigError if a source has this label, but no metric of this name. False: no source has the label. A metric
  // that the state has counts as one of the source's: algorithms may set some by hand.
  bool check_metric(std::string_view who, std::string_view label, std::string_view name, const State& state) const;

  // Warns if an option `better` contradicts what the metric declares. An option that is not given asks the metric.
  void check_better(std::string_view who, std::optional<Better> given, std::string_view label,
                    std::string_view name) const;

  // For a time that is counted at the end of epochs, in a fit without any: throws ConfigError, or warns if the time is
  // the option's default. `effect` says what follows, as in "so no checkpoint is written before end()".
  void check_epochs(std::string_view option, Time time, Time by_default, std::string_view effect,
                    const State& state) const;

  // The same for an interval, whose default is "1ep". One that is a function or never comes is left alone.
  void check_interval(std::string_view option, const Interval& interval, std::string_view effect,
                      const State& state) const;

  std::string labels() const;  // "train, eval"
};

}  // namespace composer
