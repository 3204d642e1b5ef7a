#pragma once
#include <cstdint>

#include "composer/core/state.h"
#include "composer/util/random.h"

namespace composer {

// The seed of random numbers that have to differ by rank, such as the partners of mixup. That of rank 0 is state.seed,
// so a run of one process draws what it always has. What all ranks have to draw alike depends on state.seed itself.
inline std::uint64_t rank_seed(const State& state) {
  constexpr std::uint64_t kRanks = 0x72616e6b;  // other streams begin with other numbers
  return state.rank == 0 ? state.seed : hash64(state.seed, kRanks, state.rank);
}

}  // namespace composer
