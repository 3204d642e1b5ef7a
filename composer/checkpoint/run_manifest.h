#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "composer/checkpoint/manifest.h"

namespace composer {
class StateDict;
struct State;
}  // namespace composer

namespace composer::saving {

// The manifest of a checkpoint written now; placeholders in the name are replaced.
Manifest manifest_of(const State& state, const std::string& name);

// The number of the program's fit that began last, from the state `all`; unset: weights alone.
std::optional<std::int64_t> fit_of(const StateDict& all);

}  // namespace composer::saving
