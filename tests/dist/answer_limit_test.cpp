// How long a rank waits for rank 0's port: no longer than its limit, whoever listens there.
#include "composer/dist/answer_limit.h"

#include <chrono>
#include <cstdint>
#include <unistd.h>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <netinet/in.h>
#include <sys/socket.h>

#include "composer/core/error.h"
#include "composer/dist/store.h"
#include "tests/support/doctest.h"

namespace composer::dist::answer_limit_test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// Accepts connections, as the system does for it, and never answers.
class Silent {
 public:
  Silent() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    REQUIRE(::bind(socket_, any, size) == 0);
    REQUIRE(::listen(socket_, 50) == 0);
    REQUIRE(::getsockname(socket_, any, &size) == 0);
    port = ntohs(address.sin_port);
  }
  ~Silent() { ::close(socket_); }
  Silent(const Silent&) = delete;
  Silent& operator=(const Silent&) = delete;

  std::uint16_t port = 0;

 private:
  int socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
};

Environment second_rank(std::uint16_t port) {
  Environment environment;
  environment.rank = environment.local_rank = 1;
  environment.world_size = environment.local_world_size = 2;
  environment.master_addr = "127.0.0.1";
  environment.master_port = port;
  return environment;
}

TEST_CASE("a rank waits no longer than its limit for a port where something listens and does not answer") {
  const Silent silent;
  const auto begin = Clock::now();
  CHECK_THROWS_WITH_AS(open_store(second_rank(silent.port), /*times_joined=*/0, 300ms),
                       doctest::Contains("something else may listen there"), ConfigError);
  CHECK_THROWS(second_connection(second_rank(silent.port), /*times_joined=*/0, 300ms));
  CHECK(Clock::now() - begin < 30s);
}

TEST_CASE("a wait that has no limit fails at the end of the time, and one to another port or begun before does not") {
  const Silent silent, other;
  const auto connected_to = [](std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    const int descriptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    REQUIRE(::connect(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    return descriptor;
  };
  const int earlier = connected_to(silent.port);
  const AnswerLimit limit(silent.port, 20ms);
  const int goes_on = connected_to(other.port), waits = connected_to(silent.port);
  char byte = 0;
  CHECK(::recv(waits, &byte, 1, 0) == 0);
  for (const int open : {earlier, goes_on}) CHECK(::recv(open, &byte, 1, MSG_DONTWAIT) == -1);
  for (const int open : {earlier, goes_on, waits}) ::close(open);
}

}  // namespace
}  // namespace composer::dist::answer_limit_test
