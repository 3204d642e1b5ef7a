// Ranks whose collectives do not fit each other. Internal.
#pragma once
#include <memory>

namespace composer::dist {

class World;

// Gloo notices on a thread of its own that two ranks' messages do not fit, and throws where nobody can catch. From now
// on the process does not abort then: it says why, tells the other ranks, and ends with status 1.
void explain_misfits(const std::shared_ptr<World>& world);

}  // namespace composer::dist
