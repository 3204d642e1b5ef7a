#pragma once
#include <cstdint>
#include <string_view>

#include "composer/util/own_random.h"

namespace composer {

struct State;
class Ranks;

// What an evaluation or prediction draws: neither is what training draws next changed by it, nor does it change if a
// signal cuts it off and a resumed run does it again. `call`: of those that the program makes at one batch; 0: it is
// due.
OwnRandom random_of_evaluation(const State& state, std::string_view label, std::int64_t call);

// Random numbers of a rank other than 0 are those of its place in training, so that nothing has to be saved of them.
void seed_by_place(OwnRandom& random, const State& state, const Ranks& ranks);

}  // namespace composer
