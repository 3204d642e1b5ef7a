#pragma once
#include <cstdint>
#include <string_view>

#include "composer/util/own_random.h"

namespace composer {

struct State;
class Ranks;

// The random numbers of an evaluation or prediction. They do not change the numbers that training draws next, and they
// are the same if a signal interrupts the evaluation and a resumed run repeats it. `call`: number of the call among
// those of the program at one batch; 0: a periodic evaluation.
OwnRandom random_of_evaluation(const State& state, std::string_view label, std::int64_t call);

// Seeds random numbers of a rank other than 0 by its position in training, so that none of its generators has to be
// saved.
void seed_by_place(OwnRandom& random, const State& state, const Ranks& ranks);

}  // namespace composer
