#pragma once
#include <array>
#include <cstdint>

#include "composer/core/stop.h"

namespace composer {

// How ranks agree to stop. Each rank casts a vote. The element-wise maximum of all votes is the same on every rank, and
// so is the decision that is read from it. Pure functions: the caller exchanges the votes.
struct Wish {  // what a rank was asked for
  bool stop = false;
  Stop::Kind kind = Stop::PAUSED;
  int signal = 0;
};
using Vote = std::array<std::int64_t, 3>;
Vote vote_of(const Wish& wish, int rank, int size);

struct Decision {
  int asker = -1;  // rank whose reason to stop is used; -1: no rank was asked to stop
  Stop::Kind kind = Stop::PAUSED;
  int signal = 0;
};
Decision decide(const Vote& largest, int size);

// A vote about signals alone, within an evaluation or prediction, where the votes are added up.
using SignalVote = std::array<std::int64_t, 2>;
SignalVote vote_of(int signal);
int signal_of(const SignalVote& sum);

}  // namespace composer
