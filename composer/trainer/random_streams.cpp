#include "composer/trainer/random_streams.h"

#include "composer/core/rank_seed.h"
#include "composer/core/state.h"
#include "composer/trainer/ranks.h"

namespace composer {

OwnRandom random_of_evaluation(const State& state, std::string_view label, std::int64_t call) {
  constexpr std::uint64_t kEvaluations = 0x6173696465;  // other streams begin with other numbers
  std::uint64_t seed = hash64(rank_seed(state), kEvaluations, state.timestamp.batch, call);
  for (const char letter : label) seed = hash64(seed, static_cast<unsigned char>(letter));
  return {state.device, seed};
}

void seed_by_place(OwnRandom& random, const State& state, const Ranks& ranks) {
  if (!ranks.first() || ranks.has_shards())
    random.seed(hash64(rank_seed(state), static_cast<std::uint64_t>(state.timestamp.batch)));
}

}  // namespace composer
