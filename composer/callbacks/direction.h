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

// What a stopper takes for an improvement: what its options say, or else what the model's metric of that name says of
// itself, or else less for a name with loss, error, perplexity or entropy in it, and more for any other.
Better direction(std::optional<Better> given, const State& state, const std::string& monitor);

// The texts of an option `better`.
inline std::vector<std::pair<std::string, std::optional<Better>>> directions() {
  return {{"auto", std::nullopt}, {"higher", Better::HIGHER}, {"lower", Better::LOWER}};
}

}  // namespace composer::callbacks
