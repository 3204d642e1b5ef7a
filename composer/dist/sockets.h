#pragma once
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include <sys/types.h>

namespace composer::dist {

// The sockets that this process opened between begin() and end(). Another thread can shut them down: every call that
// waits on one then fails at once. Gloo has no other way to end a collective whose peer does not answer.
class Sockets {
 public:
  // Connections whose local port is `served` belong to the store's server, and are never shut down.
  explicit Sockets(std::uint16_t served = 0) : served_(served) {}

  void begin();
  void end();
  // May be called from any thread at any time. Between begin() and end(), it shuts down the sockets opened so far.
  void shut_down() const;
  // Like shut_down(), but only for connections to a server at that port of any machine.
  void shut_down_to(std::uint16_t port) const;

 private:
  using Ids = std::vector<std::pair<int, ino_t>>;  // the inode tells whether a descriptor is still the same socket
  static Ids open_now();
  bool is_ours(const std::pair<int, ino_t>& id) const;

  const std::uint16_t served_;
  mutable std::mutex mutex_;
  bool began_ = false, ended_ = false;
  Ids before_, ours_;
};

}  // namespace composer::dist
