// What a rank learns from its launcher: variables, and the socket of rank 0.
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <set>
#include <string_view>
#include <system_error>
#include <thread>
#include <unistd.h>

#include <netinet/in.h>
#include <sys/socket.h>

#include "composer/cli/launch_run.h"
#include "composer/core/error.h"

namespace composer::cli {

std::vector<std::string> rank_environment(const LaunchOptions& options, int local_rank, int restart_count,
                                          std::uint16_t port, int master_descriptor) {
  const std::int64_t processors = std::max(1U, std::thread::hardware_concurrency());
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
  if (std::getenv("OMP_NUM_THREADS") == nullptr)
    set.emplace_back("OMP_NUM_THREADS", std::to_string(std::max<std::int64_t>(1, processors / options.ranks)));
  if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) set.emplace_back("TORCH_CPP_LOG_LEVEL", "ERROR");

  std::set<std::string_view> replaced = {"TORCHELASTIC_USE_AGENT_STORE", "COMPOSER_MASTER_FD"};
  for (const auto& [name, value] : set) replaced.insert(name);
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry)
    if (const std::string_view text = *entry; !replaced.contains(text.substr(0, text.find('='))))
      environment.emplace_back(text);
  for (const auto& [name, value] : set) environment.push_back(join(name, '=', value));
  return environment;
}

MasterSocket::MasterSocket(std::uint16_t port, bool everywhere) {
  descriptor_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(everywhere ? INADDR_ANY : INADDR_LOOPBACK);
  const int reuse = 1;
  socklen_t size = sizeof address;
  if (descriptor_ < 0 || ::setsockopt(descriptor_, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse) != 0 ||
      ::bind(descriptor_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(descriptor_, SOMAXCONN) != 0 ||
      ::getsockname(descriptor_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    const int error = errno;
    close();
    throw ConfigError("--master-port: cannot listen on port ", port, ": ", std::generic_category().message(error));
  }
  port_ = ntohs(address.sin_port);
}

void MasterSocket::close() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

}  // namespace composer::cli
