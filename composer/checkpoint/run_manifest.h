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

// What a run says of a checkpoint of this moment; placeholders in the name are replaced.
Manifest manifest_of(const State& state, const std::string& name);

// Of the program's fits, the one that was begun last, as the run has it; unset: of weights alone.
std::optional<std::int64_t> fit_of(const StateDict& all);

}  // namespace composer::saving
