#pragma once
#include <chrono>
#include <string>

#include <c10/util/intrusive_ptr.h>

#include "composer/dist/environment.h"

namespace c10d {
class Store;
}

namespace composer::dist {

// The store is a table of texts that all ranks read and write. Rank 0 serves it, or torchrun's agent does.
using StorePtr = c10::intrusive_ptr<c10d::Store>;

// Whether this process serves the store.
bool serves_store(const Environment& environment);
// The rank whose loss takes the store away; -1 if the launcher serves it.
int rank_of_store(const Environment& environment);

// The first connection of this process, which serves the store where it has to. Throws ConfigError if the port is
// taken, or if nobody answers within the timeout. `times_joined` keeps apart the keys of worlds that this process joins
// one after another.
StorePtr open_store(const Environment& environment, int times_joined, std::chrono::milliseconds timeout);
// Another connection to the same keys: one connection serves one call at a time, and some calls wait.
StorePtr second_connection(const Environment& environment, int times_joined, std::chrono::milliseconds timeout);

// What the keys of a world begin with. After a restart by torchrun, its store still has those of the attempt before.
std::string prefix_of(const Environment& environment, int times_joined);
std::string this_process();  // "process 4711 on host"

// Time as arrive() sees it; tests simulate it.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual std::chrono::milliseconds now() const;
  virtual void sleep(std::chrono::milliseconds time) const;
};

// Tells the others that this rank is there, and waits for all of them. Throws ConfigError, on all ranks, if some do not
// arrive or if the ranks disagree about their number; on a process whose rank another one has, if the others have
// arrived without it, else on all. PeerLost if the store is gone.
// `process` tells apart those that have the same rank.
void arrive(c10d::Store& store, const Environment& environment, std::chrono::milliseconds timeout,
            const Clock& clock = Clock(), const std::string& process = this_process());

// Keys that every rank has written when arrive() returns.
std::string beat_key(int rank);
inline const std::string kVerdictKey = "verdict";
inline const std::string kNoVerdict = "-";

}  // namespace composer::dist
