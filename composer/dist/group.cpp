#include "composer/dist/group.h"

#include <memory>
#include <netdb.h>
#include <unistd.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <sys/socket.h>

#include "composer/core/error.h"
#include "composer/dist/variables.h"

namespace composer::dist {
namespace {

using Gloo = c10d::ProcessGroupGloo;

// This machine's address on the route to a host. connect() on a datagram socket sends nothing.
std::string local_address_towards(const addrinfo& host) {
  const int probe = socket(host.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (probe < 0) return {};
  sockaddr_storage mine{};
  socklen_t size = sizeof mine;
  char text[NI_MAXHOST] = "";
  auto* address = reinterpret_cast<sockaddr*>(&mine);
  const bool found = connect(probe, host.ai_addr, host.ai_addrlen) == 0 && getsockname(probe, address, &size) == 0 &&
                     getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0;
  close(probe);
  return found ? text : "";
}

std::string local_address_towards(const std::string& host, std::uint16_t port) {
  addrinfo hints{}, *list = nullptr;
  hints.ai_socktype = SOCK_DGRAM;
  if (const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list); error != 0)
    throw ConfigError("MASTER_ADDR='", host, "' cannot be resolved: ", gai_strerror(error));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, freeaddrinfo);
  for (const addrinfo* each = list; each != nullptr; each = each->ai_next)
    if (std::string address = local_address_towards(*each); !address.empty()) return address;
  throw ConfigError("no network interface has a route to MASTER_ADDR='", host, "'; set GLOO_SOCKET_IFNAME to one");
}

std::shared_ptr<gloo::transport::Device> device(const Environment& environment, const Options& options) {
  std::string interface = options.interface;
  if (interface.empty()) interface = variable("GLOO_SOCKET_IFNAME").value_or("");
  if (!interface.empty()) try {
      return Gloo::createDeviceForInterface(interface, /*lazyInit=*/false);
    } catch (const std::exception&) {
      // Gloo's error is not nested, because a nested one would be taken for the loss of a rank.
      throw ConfigError(
          "Gloo cannot use the network interface '", interface,
          "': it does not exist or has no address; set GLOO_SOCKET_IFNAME to one that `ip address` lists");
    }
  // Gloo's default, the address of the machine's own name, is not used: Debian resolves the name to 127.0.1.1.
  const bool one_machine = environment.local_world_size == environment.world_size;
  return Gloo::createDeviceForHostname(
      one_machine ? "127.0.0.1" : local_address_towards(environment.master_addr, environment.master_port),
      /*lazyInit=*/false);
}

}  // namespace

c10::intrusive_ptr<c10d::ProcessGroup> make_group(const StorePtr& store, const Environment& environment,
                                                  const Options& options) {
  const int rank = environment.rank, size = environment.world_size;
  auto of_gloo = Gloo::Options::create(options.collective_timeout);
  of_gloo->devices.push_back(device(environment, options));
  auto gloo = c10::make_intrusive<Gloo>(c10::make_intrusive<c10d::PrefixStore>("gloo", store), rank, size, of_gloo);
  auto group = c10::make_intrusive<c10d::ProcessGroup>(store, rank, size);
  group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO,
                    c10::intrusive_ptr<c10d::Backend>(gloo));
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
  group->setGroupName("composer");
  return group;
}

}  // namespace composer::dist
