#pragma once
#include <chrono>
#include <string>

#include <c10/util/intrusive_ptr.h>

#include "composer/dist/environment.h"

namespace c10d {
class Store;
}

namespace composer::dist {

// A table of texts that all ranks read and write. Rank 0 or torchrun's agent serves it.
using StorePtr = c10::intrusive_ptr<c10d::Store>;

// Whether this process serves the store.
bool serves_store(const Environment& environment);
// The rank that serves the store; -1 if the launcher does. If this rank is lost, so is the store.
int rank_of_store(const Environment& environment);

// The first connection of this process. Serves the store if this process has to. Throws ConfigError if the port is
// taken, or if there is no answer within the timeout. `times_joined` separates the keys of worlds that this process
// joins one after another.
StorePtr open_store(const Environment& environment, int times_joined, std::chrono::milliseconds timeout);
// Another connection to the same keys. A connection handles one call at a time, and some calls wait.
StorePtr second_connection(const Environment& environment, int times_joined, std::chrono::milliseconds timeout);

// The prefix of a world's keys. After a restart by torchrun, its store still has the keys of the earlier attempt.
std::string prefix_of(const Environment& environment, int times_joined);
std::string this_process();  // "process 4711 on host"

// The clock that arrive() uses. Tests simulate it.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual std::chrono::milliseconds now() const;
  virtual void sleep(std::chrono::milliseconds time) const;
};

// Tells the other ranks that this rank has arrived, and waits for all of them. Throws ConfigError on all ranks if some
// do not arrive or if the ranks disagree about their number. If two processes have the same rank: throws ConfigError on
// the second one if all others have arrived without it, otherwise on all. Throws PeerLost if the store is gone.
// `process` distinguishes processes with the same rank.
void arrive(c10d::Store& store, const Environment& environment, std::chrono::milliseconds timeout,
            const Clock& clock = Clock(), const std::string& process = this_process());

// Keys that every rank has written when arrive() returns.
std::string beat_key(int rank);
inline const std::string kVerdictKey = "verdict";
inline const std::string kNoVerdict = "-";

}  // namespace composer::dist
