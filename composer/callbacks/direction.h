#pragma once
#include <array>
#include <optional>
#include <string>
#include <utility>

#include "composer/core/metric.h"

namespace composer {
struct FitOutline;
struct State;
}  // namespace composer

namespace composer::callbacks {

// Called at the start of a fit. Throws ConfigError, beginning with `who`, if the label has no such metric. Warns if no
// source of the fit has the label, because eval() may be given an evaluator with it, and if the metric contradicts
// `better`.
void check_monitor(const char* who, const std::string& label, const std::string& monitor, std::optional<Better> better,
                   const FitOutline& fit, const State& state);

// Whether a callback that judges a run uses the evaluation that ends now. False if a signal has interrupted it, because
// it then has no metrics; also at the end of a fit that is only paused, because a run without the pause would not have
// that evaluation.
bool is_judged(const State& state);
// As above, for a callback that judges by this metric. Also false for an evaluation of a part of the data, or of other
// data than the evaluator's, whose values are not current.
bool is_judged(const State& state, const std::string& label, const std::string& monitor);

// Names of the values of the option `better`.
inline constexpr std::array<std::pair<const char*, std::optional<Better>>, 3> kDirections = {
    {{"auto", std::nullopt}, {"higher", Better::HIGHER}, {"lower", Better::LOWER}}};

}  // namespace composer::callbacks
