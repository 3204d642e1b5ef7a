#pragma once
#include <array>
#include <cstdint>

#include "composer/core/stop.h"

namespace composer {

// How ranks agree to stop. Each casts a vote, the element-wise maximum of the votes is the same on every rank, and so
// is the decision that is read from it. Pure functions: the caller makes the votes meet.
struct Wish {  // what a rank has been asked for
  bool stop = false;
  Stop::Kind kind = Stop::PAUSED;
  int signal = 0;
};
using Vote = std::array<std::int64_t, 3>;
Vote vote_of(const Wish& wish, int rank, int size);

struct Decision {
  int asker = -1;  // the rank whose reason to stop counts; -1: no rank was asked to
  Stop::Kind kind = Stop::PAUSED;
  int signal = 0;
};
Decision decide(const Vote& largest, int size);

// The same of signals alone, within an evaluation or prediction, where votes are added up.
using SignalVote = std::array<std::int64_t, 2>;
SignalVote vote_of(int signal);
int signal_of(const SignalVote& sum);

}  // namespace composer
