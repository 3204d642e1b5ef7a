#pragma once
#include <optional>

#include "tests/replay/replay.h"

namespace composer::replay {

// The cases of algorithms.json whose algorithms replace modules; nothing for any other.
std::optional<Outcome> replay_surgery(const Json& c, const Context& context);

}  // namespace composer::replay
