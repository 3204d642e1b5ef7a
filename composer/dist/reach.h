#pragma once
#include <chrono>
#include <cstdint>
#include <string>

namespace composer::dist {

// Waits until a server listens at the port of the host. Returns false if none does within the timeout. Throws
// ConfigError if the host's name cannot be resolved in that time. The store's own client is not used for this: it
// exceeds its timeout severalfold, and prints stack frames.
bool wait_until_reachable(const std::string& host, std::uint16_t port, std::chrono::milliseconds timeout);

}  // namespace composer::dist
