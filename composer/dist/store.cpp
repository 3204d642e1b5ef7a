#include "composer/dist/store.h"

#include <algorithm>
#include <fcntl.h>
#include <optional>
#include <thread>
#include <unistd.h>
#include <vector>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <sys/socket.h>

#include "composer/core/error.h"
#include "composer/dist/answer_limit.h"
#include "composer/dist/reach.h"
#include "composer/dist/variables.h"
#include "composer/dist/world.h"

namespace composer::dist {
namespace {

using std::chrono::milliseconds;

std::string seconds_text(milliseconds time) { return join(static_cast<double>(time.count()) / 1000, " s"); }

// The socket that `composer launch` has bound before it started rank 0, so that no other process can take the port in
// between. Returned once: a second world of this process binds the port itself.
std::optional<int> inherited_socket() {
  const auto given = integer_variable("COMPOSER_MASTER_FD", 0, 1 << 20);
  if (!given) return std::nullopt;
  unsetenv("COMPOSER_MASTER_FD");
  const int socket = static_cast<int>(*given);
  int listening = 0;
  socklen_t size = sizeof listening;
  if (getsockopt(socket, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) != 0 || listening == 0)
    throw ConfigError("COMPOSER_MASTER_FD=", socket,
                      " is not a listening socket; `composer launch` sets this variable");
  fcntl(socket, F_SETFD, FD_CLOEXEC);  // child processes do not inherit the socket
  return socket;
}

StorePtr connect(const Environment& environment, int times_joined, c10d::TCPStoreOptions options) {
  options.port = environment.master_port;
  options.numWorkers = static_cast<std::size_t>(environment.world_size);
  options.waitWorkers = false;  // arrive() waits, and its errors name the missing ranks
  // The store's own timeout does not apply to the first answer. This limit ends after that timeout, so that the store
  // does not try again.
  const AnswerLimit limit(environment.master_port, options.timeout + milliseconds(100));
  StorePtr store;
  try {
    store = c10::make_intrusive<c10d::TCPStore>(environment.master_addr, options);
  } catch (const c10::Error& error) {  // this libtorch may lack libuv; no function tells
    if (std::string_view(error.what_without_backtrace()).find("libuv") == std::string_view::npos) throw;
    options.useLibUV = false;
    store = c10::make_intrusive<c10d::TCPStore>(environment.master_addr, options);
  }
  return c10::make_intrusive<c10d::PrefixStore>(prefix_of(environment, times_joined), store);
}

// Sets the key unless another rank has set it. Returns the value that the key has then.
std::string claim(c10d::Store& store, const std::string& key, const std::string& value) {
  return store.compareSet(key, std::string(), value);
}

std::string rank_key(int rank) { return join("rank/", rank); }

// The outcome of an arrival, the same for all ranks: kArrived, or the reason for the failure. The first value that is
// claimed counts.
const std::string kOutcomeKey = "outcome", kArrived = "arrived";

// Throws the outcome, which is not kArrived. The rank that serves the store first waits until the others have read it.
[[noreturn]] void refuse(c10d::Store& store, const Environment& environment, const Clock& clock,
                         const std::string& outcome) {
  const std::int64_t read = store.add("refused_read", 1);
  if (serves_store(environment)) {
    int arrived = 0;
    for (int rank = 0; rank < environment.world_size; ++rank) arrived += store.check({rank_key(rank)}) ? 1 : 0;
    const milliseconds end = clock.now() + std::chrono::seconds(2);
    for (std::int64_t seen = read; seen < arrived && clock.now() < end; seen = store.add("refused_read", 0))
      clock.sleep(milliseconds(20));
  }
  throw ConfigError(outcome);
}

// Refuses this process, which does not belong to the world. If all others have arrived, they go on without it.
[[noreturn]] void refuse_this(c10d::Store& store, const Environment& environment, const Clock& clock,
                              const std::string& why) {
  const std::string outcome = claim(store, kOutcomeKey, why);
  refuse(store, environment, clock, outcome == kArrived ? why : outcome);
}

std::string missing_ranks(c10d::Store& store, int size) {
  std::string missing;
  for (int rank = 0; rank < size; ++rank)
    if (!store.check({rank_key(rank)})) missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
  return missing;
}

void check_in(c10d::Store& store, const Environment& environment, const Clock& clock, const std::string& me) {
  const std::string size = std::to_string(environment.world_size);
  if (const std::string theirs = claim(store, "world_size", size); theirs != size)
    refuse_this(
        store, environment, clock,
        join("rank ", environment.rank, " (", me, ") has WORLD_SIZE=", size, ", but another rank has ", theirs));
  if (!environment.job.empty())
    if (const std::string theirs = claim(store, "job", environment.job); theirs != environment.job)
      refuse_this(store, environment, clock,
                  join("rank ", environment.rank, " (", me, ") belongs to ", environment.job, ", but the ranks at ",
                       environment.master_addr, ":", environment.master_port, " to ", theirs,
                       "; give each job a MASTER_PORT of its own"));
  if (const std::string other = claim(store, rank_key(environment.rank), me); other != me)
    refuse_this(store, environment, clock,
                join("two processes have RANK=", environment.rank, ": ", other, " and ", me));
}

}  // namespace

milliseconds Clock::now() const {
  return std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now().time_since_epoch());
}

void Clock::sleep(milliseconds time) const { std::this_thread::sleep_for(time); }

std::string prefix_of(const Environment& environment, int times_joined) {
  return join("composer/", environment.restart_count, "/", times_joined);
}

std::string this_process() {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  return join("process ", getpid(), " on ", host);
}

std::string beat_key(int rank) { return join("beat/", rank); }

bool serves_store(const Environment& environment) { return environment.rank == 0 && !environment.agent_store; }

int rank_of_store(const Environment& environment) { return environment.agent_store ? -1 : 0; }

StorePtr open_store(const Environment& environment, int times_joined, milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.timeout = timeout;
  options.isServer = serves_store(environment);
  if (options.isServer) options.masterListenFd = inherited_socket();
  const std::string& host = environment.master_addr;
  const std::uint16_t port = environment.master_port;
  const std::string what = environment.agent_store ? "the launcher's store" : "rank 0";
  const Clock clock;
  const milliseconds end = clock.now() + timeout;
  if (!options.isServer && !wait_until_reachable(host, port, timeout))
    throw ConfigError("rank ", environment.rank, " did not reach ", what, " at ", host, ":", port, " within ",
                      seconds_text(timeout), "; check MASTER_ADDR and MASTER_PORT, and whether rank 0 has started");
  options.timeout = std::max(end - clock.now(), std::min(timeout, milliseconds(1000)));
  try {
    return connect(environment, times_joined, options);
  } catch (const std::exception&) {
    if (options.isServer)
      throw_nested<ConfigError>("rank 0 cannot serve the store on port ", port,
                                "; if another program uses the port, set MASTER_PORT to a free one");
    throw_nested<ConfigError>("rank ", environment.rank, " did not reach ", what, " at ", host, ":", port,
                              "; something else may listen there");
  }
}

StorePtr second_connection(const Environment& environment, int times_joined, milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.timeout = timeout;
  return connect(environment, times_joined, options);
}

void arrive(c10d::Store& store, const Environment& environment, milliseconds timeout, const Clock& clock,
            const std::string& process) try {
  // Set before other ranks can see this rank: a rank that has seen all ranks reads these keys.
  claim(store, kVerdictKey, kNoVerdict);
  claim(store, beat_key(environment.rank), "0 w ");
  check_in(store, environment, clock, process);
  std::vector<std::string> all;
  all.reserve(static_cast<std::size_t>(environment.world_size));
  for (int rank = 0; rank < environment.world_size; ++rank) all.push_back(rank_key(rank));
  const milliseconds begin = clock.now(), end = begin + timeout;
  constexpr milliseconds kTell = std::chrono::seconds(15);
  bool has_told = false;
  std::string outcome = kArrived;
  for (milliseconds pause(2); !store.check(all); pause = std::min(pause * 2, milliseconds(200))) {
    if (store.check({kOutcomeKey})) break;
    if (clock.now() > end) {
      outcome =
          join("rank ", environment.rank, " waited ", seconds_text(timeout), " at ", environment.master_addr, ":",
               environment.master_port, "; ranks that did not arrive: ", missing_ranks(store, environment.world_size));
      break;
    }
    if (serves_store(environment) && clock.now() - begin > kTell && !std::exchange(has_told, true))
      warn(join("rank ", environment.rank, " waits at ", environment.master_addr, ":", environment.master_port,
                " for ranks ", missing_ranks(store, environment.world_size), " of ", environment.world_size, ", for ",
                seconds_text(timeout)));
    clock.sleep(pause);
  }
  outcome = claim(store, kOutcomeKey, outcome);
  if (outcome != kArrived) refuse(store, environment, clock, outcome);
} catch (const Error&) {
  throw;
} catch (const std::exception& error) {
  throw PeerLost(rank_of_store(environment), join(environment.agent_store ? "the launcher's store" : "rank 0",
                                                  " ended before all ranks had arrived", because()));
}

}  // namespace composer::dist
