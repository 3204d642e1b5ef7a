#pragma once
#include <optional>

#include "tests/replay/replay.h"

namespace composer::replay {

// The cases of algorithms.json that apply an algorithm to a whole model, or compare what it puts there; nothing for any
// other.
std::optional<Outcome> replay_models(const Json& c, const Context& context);
const Rules& model_rules();

}  // namespace composer::replay
