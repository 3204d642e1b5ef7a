#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "composer/core/metric.h"

namespace composer {
struct FitOutline;
struct State;
}  // namespace composer

namespace composer::callbacks {

// Which values are better for a stopper: as set in its options, else as declared by the model's metric of that name,
// else lower for names that contain loss, error, perplexity or entropy, and higher for all others.
Better direction(std::optional<Better> given, const State& state, const std::string& monitor);

// At the start of a fit: throws ConfigError that begins with `who` if the label has no such metric, and warns if no
// source of the fit has the label, because eval() may be given an evaluator of it.
void check_monitor(const char* who, const std::string& label, const std::string& monitor, const FitOutline& fit,
                   const State& state);

// Conversion of the option `better` from and to text.
inline std::vector<std::pair<std::string, std::optional<Better>>> directions() {
  return {{"auto", std::nullopt}, {"higher", Better::HIGHER}, {"lower", Better::LOWER}};
}

}  // namespace composer::callbacks
