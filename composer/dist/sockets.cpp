#include "composer/dist/sockets.h"

#include <algorithm>
#include <charconv>
#include <dirent.h>
#include <memory>
#include <string_view>

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

namespace composer::dist {
namespace {

bool is_listening(int socket) {
  int listening = 0;
  socklen_t size = sizeof listening;
  return getsockopt(socket, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) != 0 || listening != 0;
}

// The port of an end of the socket: the own one with getsockname(), the other with getpeername(). 0 if it has none.
std::uint16_t port_of(int socket, int (*name_of)(int, sockaddr*, socklen_t*) noexcept) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (name_of(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  if (address.ss_family == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port);
  return 0;  // not an internet address
}

}  // namespace

Sockets::Ids Sockets::open_now() {
  Ids ids;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/fd"), closedir);
  if (!folder) return ids;
  while (const dirent* entry = readdir(folder.get())) {
    const std::string_view name = entry->d_name;
    int descriptor = -1;
    struct stat status {};
    // "." and ".." are no numbers
    if (std::from_chars(name.data(), name.data() + name.size(), descriptor).ec != std::errc()) continue;
    if (fstat(descriptor, &status) == 0 && S_ISSOCK(status.st_mode)) ids.emplace_back(descriptor, status.st_ino);
  }
  return ids;
}

void Sockets::begin() {
  const std::lock_guard lock(mutex_);
  before_ = open_now();
  began_ = true;
}

void Sockets::end() {
  const std::lock_guard lock(mutex_);
  for (const auto& id : open_now())
    if (is_ours(id)) ours_.push_back(id);
  ended_ = true;
}

bool Sockets::is_ours(const std::pair<int, ino_t>& id) const {
  if (ended_) return std::ranges::find(ours_, id) != ours_.end();
  return began_ && std::ranges::find(before_, id) == before_.end();
}

void Sockets::shut_down() const {
  const std::lock_guard lock(mutex_);
  for (const auto& id : open_now()) {
    if (!is_ours(id) || is_listening(id.first)) continue;
    const std::uint16_t port = port_of(id.first, getsockname);
    if (port != 0 && port != served_) ::shutdown(id.first, SHUT_RDWR);
  }
}

void Sockets::shut_down_to(std::uint16_t port) const {
  const std::lock_guard lock(mutex_);
  for (const auto& id : open_now())
    if (is_ours(id) && port_of(id.first, getpeername) == port) ::shutdown(id.first, SHUT_RDWR);
}

}  // namespace composer::dist
