#pragma once
#include <optional>

#include "tests/replay/replay.h"

namespace composer::replay {

// The cases of algorithms.json about stochastic depth; nothing for any other.
std::optional<Outcome> replay_depth(const Json& c, const Context& context);
const Rules& depth_rules();

}  // namespace composer::replay
