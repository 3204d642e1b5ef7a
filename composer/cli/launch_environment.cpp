// What a launcher passes to a rank: environment variables, and the socket of rank 0.
#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <set>
#include <string_view>
#include <system_error>
#include <unistd.h>

#include <netinet/in.h>
#include <sys/socket.h>

#include "composer/cli/launch_run.h"
#include "composer/core/error.h"
#include "composer/util/environment.h"
#include "composer/util/usable_processors.h"

namespace composer::cli {

std::vector<std::string> rank_environment(const LaunchOptions& options, int local_rank, int restart_count,
                                          std::uint16_t port, int master_descriptor) {
  const std::int64_t processors = util::usable_processors();
  const std::string node = std::to_string(options.node);
  std::vector<std::pair<std::string, std::string>> set = {
      {"RANK", std::to_string(options.first_rank() + local_rank)},
      {"LOCAL_RANK", std::to_string(local_rank)},
      {"WORLD_SIZE", std::to_string(options.nodes * options.ranks)},
      {"LOCAL_WORLD_SIZE", std::to_string(options.ranks)},
      {"NODE_RANK", node},
      {"GROUP_RANK", node},
      {"MASTER_ADDR", options.master_addr.empty() ? "127.0.0.1" : options.master_addr},
      {"MASTER_PORT", std::to_string(port)},
      {"TORCHELASTIC_RESTART_COUNT", std::to_string(restart_count)},
      {"COMPOSER_LAUNCHER", "composer launch"}};
  if (master_descriptor >= 0) set.emplace_back("COMPOSER_MASTER_FD", std::to_string(master_descriptor));
  if (!environment_if_set("OMP_NUM_THREADS"))
    set.emplace_back("OMP_NUM_THREADS", std::to_string(std::max<std::int64_t>(1, processors / options.ranks)));
  if (!environment_if_set("TORCH_CPP_LOG_LEVEL")) set.emplace_back("TORCH_CPP_LOG_LEVEL", "ERROR");

  std::set<std::string_view> replaced = {"TORCHELASTIC_USE_AGENT_STORE", "COMPOSER_MASTER_FD"};
  for (const auto& [name, value] : set) replaced.insert(name);
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry)
    if (const std::string_view text = *entry; !replaced.contains(text.substr(0, text.find('='))))
      environment.emplace_back(text);
  for (const auto& [name, value] : set) environment.push_back(join(name, '=', value));
  return environment;
}

namespace {

// Returns 0 or the error. IPv6 sockets also accept IPv4.
int listen_at(int descriptor, sa_family_t family, bool everywhere, std::uint16_t port) {
  sockaddr_storage address{};
  socklen_t size = sizeof(sockaddr_in);
  address.ss_family = family;
  if (family == AF_INET6) {
    auto& six = reinterpret_cast<sockaddr_in6&>(address);
    six.sin6_port = htons(port);
    six.sin6_addr = everywhere ? in6addr_any : in6addr_loopback;
    size = sizeof six;
  } else {
    auto& four = reinterpret_cast<sockaddr_in&>(address);
    four.sin_port = htons(port);
    four.sin_addr.s_addr = htonl(everywhere ? INADDR_ANY : INADDR_LOOPBACK);
  }
  const int yes = 1, no = 0;
  const bool listens =
      ::setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
      (family != AF_INET6 || ::setsockopt(descriptor, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no) == 0) &&
      ::bind(descriptor, reinterpret_cast<const sockaddr*>(&address), size) == 0 &&
      ::listen(descriptor, SOMAXCONN) == 0;
  return listens ? 0 : errno;
}

std::uint16_t port_of(int descriptor) {
  if (descriptor < 0) return 0;
  sockaddr_in6 address{};  // the port of an IPv4 address is at the same place
  socklen_t size = sizeof address;
  ::getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.sin6_port);
}

}  // namespace

MasterSocket::MasterSocket(std::uint16_t port, bool everywhere) {
  int error = 0;
  for (const sa_family_t family : {AF_INET6, AF_INET}) {
    if (family == AF_INET6 && !everywhere) continue;  // MASTER_ADDR is 127.0.0.1
    descriptor_ = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    error = descriptor_ < 0 ? errno : listen_at(descriptor_, family, everywhere, port);
    if (error == 0) break;
    close();
  }
  if (error != 0)
    throw ConfigError("--master-port: cannot listen on port ", port, ": ", std::generic_category().message(error));
  port_ = port_of(descriptor_);
}

void MasterSocket::close() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

}  // namespace composer::cli
