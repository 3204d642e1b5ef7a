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

// Tells the others that this rank is there, and waits for all of them. Throws ConfigError, on all ranks, if some do not
// arrive, if the ranks disagree about their number, or if two have the same rank; PeerLost if the store is gone.
void arrive(c10d::Store& store, const Environment& environment, std::chrono::milliseconds timeout);

// Keys that every rank has written when arrive() returns.
std::string beat_key(int rank);
inline const std::string kVerdictKey = "verdict";
inline const std::string kNoVerdict = "-";

}  // namespace composer::dist
