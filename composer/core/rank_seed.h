#pragma once
#include <cstdint>

#include "composer/core/state.h"
#include "composer/util/random.h"

namespace composer {

// The seed of random numbers that must differ between ranks, such as the partners of mixup. For rank 0 it is
// state.seed, so a run of one process draws the same numbers as before. Numbers that must be equal on all ranks depend
// on state.seed.
inline std::uint64_t rank_seed(const State& state) {
  constexpr std::uint64_t kRanks = 0x72616e6b;  // distinguishes these streams from others
  return state.rank == 0 ? state.seed : hash64(state.seed, kRanks, state.rank);
}

}  // namespace composer
