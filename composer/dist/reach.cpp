#include "composer/dist/reach.h"

#include <algorithm>
#include <memory>
#include <netdb.h>
#include <poll.h>
#include <thread>
#include <unistd.h>

#include <sys/socket.h>

#include "composer/core/error.h"

namespace composer::dist {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

Addresses resolve(const std::string& host, std::uint16_t port, int& error) {
  addrinfo hints{}, *list = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  return {error == 0 ? list : nullptr, [](addrinfo* given) {
            if (given != nullptr) freeaddrinfo(given);
          }};
}

bool connects(const addrinfo& address, milliseconds patience) {
  const int probe = socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (probe < 0) return false;
  pollfd out{probe, POLLOUT, 0};
  int error = 0;
  socklen_t size = sizeof error;
  const bool connected =
      connect(probe, address.ai_addr, address.ai_addrlen) == 0 ||
      (poll(&out, 1, static_cast<int>(patience.count())) == 1 &&
       getsockopt(probe, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0 && (out.revents & POLLOUT) != 0);
  close(probe);
  return connected;
}

}  // namespace

bool wait_until_reachable(const std::string& host, std::uint16_t port, milliseconds timeout) {
  const auto end = steady_clock::now() + timeout;
  for (milliseconds pause(10);; pause = std::min(2 * pause, milliseconds(500))) {
    int error = 0;
    const Addresses list = resolve(host, port, error);
    for (const addrinfo* each = list.get(); each != nullptr; each = each->ai_next) {
      const auto left = std::chrono::duration_cast<milliseconds>(end - steady_clock::now());
      if (connects(*each, std::clamp(left, milliseconds(0), milliseconds(5000)))) return true;
    }
    if (steady_clock::now() + pause > end) {
      if (error != 0) throw ConfigError("MASTER_ADDR='", host, "' cannot be resolved: ", gai_strerror(error));
      return false;
    }
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace composer::dist
