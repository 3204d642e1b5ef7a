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

// At the start of a fit: throws ConfigError that begins with `who` if the label has no such metric. Warns if no source
// of the fit has the label, because eval() may be given an evaluator of it, and if the metric contradicts `better`.
void check_monitor(const char* who, const std::string& label, const std::string& monitor, std::optional<Better> better,
                   const FitOutline& fit, const State& state);

// Whether who judges a run uses the evaluation that ends now: not if a signal has cut it off, so that it has no
// metrics, nor at the end of a fit that is only paused, because a run without the pause does not have it.
bool is_judged(const State& state);
// The same of who judges by this metric: neither does it use a look at a part of the data, or at other data than those
// of the evaluator, whose values are not current.
bool is_judged(const State& state, const std::string& label, const std::string& monitor);

// The texts of the option `better`.
inline constexpr std::array<std::pair<const char*, std::optional<Better>>, 3> kDirections = {
    {{"auto", std::nullopt}, {"higher", Better::HIGHER}, {"lower", Better::LOWER}}};

}  // namespace composer::callbacks
