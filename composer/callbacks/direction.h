#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "composer/core/metric.h"

namespace composer {
struct State;
}

namespace composer::callbacks {

// Which values are better for a stopper: as set in its options, else as declared by the model's metric of that name,
// else lower for names that contain loss, error, perplexity or entropy, and higher for all others.
Better direction(std::optional<Better> given, const State& state, const std::string& monitor);

// Conversion of the option `better` from and to text.
inline std::vector<std::pair<std::string, std::optional<Better>>> directions() {
  return {{"auto", std::nullopt}, {"higher", Better::HIGHER}, {"lower", Better::LOWER}};
}

}  // namespace composer::callbacks
