#include "composer/core/fit_outline.h"

#include <algorithm>

#include "composer/core/error.h"
#include "composer/core/listed.h"
#include "composer/core/state.h"

namespace composer {
namespace {

bool counts_epochs(Time time, const State& state) {
  if (time.unit() == TimeUnit::ITERATION)
    return state.iteration_length && state.iteration_length->unit() == TimeUnit::EPOCH;
  return time.unit() == TimeUnit::EPOCH;
}

}  // namespace

const FitOutline::Source* FitOutline::find(std::string_view label) const {
  const auto it = std::ranges::find(sources, label, &Source::label);
  return it == sources.end() ? nullptr : &*it;
}

std::string FitOutline::labels() const { return listed(sources, &Source::label); }

bool FitOutline::check_metric(std::string_view who, std::string_view label, std::string_view name,
                              const State& state) const {
  const Source* source = find(label);
  if (!source || state.metrics.find(label, name)) return source != nullptr;
  if (std::ranges::find(source->metrics, name) != source->metrics.end()) return true;
  throw ConfigError(who, ": there is no metric \"", label, '/', name, "\"; \"", label,
                    "\" has: ", source->metrics.empty() ? "none" : listed(source->metrics));
}

void FitOutline::check_better(std::string_view who, std::optional<Better> given, std::string_view label,
                              std::string_view name) const {
  const Source* source = find(label);
  if (!given || !source) return;
  const auto metric = std::ranges::find(source->metrics, name);
  const auto index = static_cast<std::size_t>(metric - source->metrics.begin());
  if (index >= source->better.size() || source->better[index] == *given) return;
  const auto text = [](Better better) { return better == Better::HIGHER ? "HIGHER" : "LOWER"; };
  warn(join(who, ": better is ", text(*given), ", and the metric \"", label, '/', name, "\" says ",
            text(source->better[index]), "; without the option, the metric decides"));
}

void FitOutline::check_epochs(std::string_view option, Time time, Time by_default, std::string_view effect,
                              const State& state) const {
  if (epochs_end || !counts_epochs(time, state)) return;
  const std::string text = join(option, ": is ", time, ", and no epoch ends in a loop of step(batch), ", effect,
                                "; give it in ba, sp or tok");
  if (to_string(time) != to_string(by_default)) throw ConfigError(text);
  warn(text);
}

void FitOutline::check_interval(std::string_view option, const Interval& interval, std::string_view effect,
                                const State& state) const {
  if (interval.function() || !(interval.time().as_double() > 0)) return;
  if (interval.epochs() > 0 && !epochs_end)
    throw ConfigError(option, ": is ", to_string(interval), ", and no epoch ends in a loop of step(batch), ", effect,
                      "; give it in ba, sp or tok");
  check_epochs(option, interval.time(), "1ep", effect, state);
}

}  // namespace composer
