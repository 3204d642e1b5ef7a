#include "composer/trainer/votes.h"

#include <csignal>

namespace composer {

// Ranks that ask are numbered from the end, so that the largest number is the first rank.
Vote vote_of(const Wish& wish, int rank, int size) {
  const std::int64_t mine = size - rank;
  const bool finished = wish.kind == Stop::FINISHED;
  return {wish.signal, wish.stop && !finished ? mine : 0, wish.stop && finished ? mine : 0};
}

Decision decide(const Vote& largest, int size) {
  Decision decision{.signal = static_cast<int>(largest[0])};
  const bool finished = largest[2] > 0;
  if (!finished && largest[1] == 0) return decision;
  decision.kind = finished ? Stop::FINISHED : Stop::PAUSED;
  decision.asker = size - static_cast<int>(finished ? largest[2] : largest[1]);
  return decision;
}

SignalVote vote_of(int signal) { return {signal == SIGINT ? 1 : 0, signal == SIGTERM ? 1 : 0}; }

int signal_of(const SignalVote& sum) { return sum[1] > 0 ? SIGTERM : sum[0] > 0 ? SIGINT : 0; }

}  // namespace composer
