// Explains collectives of ranks that do not match. Internal.
#pragma once
#include <memory>

namespace composer::dist {

class World;

// If messages of two ranks do not match, Gloo throws on one of its own threads, where the exception cannot be caught.
// After this call, the process does not abort then: it prints the reason, tells the other ranks, and ends with
// status 1.
void explain_misfits(const std::shared_ptr<World>& world);

}  // namespace composer::dist
