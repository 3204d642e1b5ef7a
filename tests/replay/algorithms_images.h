#pragma once
#include <optional>

#include "tests/replay/replay.h"

namespace composer::replay {

// The cases of algorithms.json whose algorithms change batches; nothing for any other.
std::optional<Outcome> replay_images(const Json& c, const Context& context);
const Rules& image_rules();

}  // namespace composer::replay
