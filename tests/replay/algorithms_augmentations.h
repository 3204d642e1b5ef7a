#pragma once
#include <optional>

#include "tests/replay/replay.h"

namespace composer::replay {

// The cases of algorithms.json about operations on images, RandAugment and AugMix; nothing for any other.
std::optional<Outcome> replay_augmentations(const Json& c, const Context& context);

}  // namespace composer::replay
