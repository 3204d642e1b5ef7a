#pragma once
#include <cstdint>
#include <string>

#include "tests/dist/simulation.h"

namespace composer::dist::simulation {

// A random schedule, and what must hold of it.
struct Trial {
  enum Kind { HARMLESS, ONE_LOST, SUSPENDED, BORDERLINE, TWO_LOST, CUT_OFF };
  Kind kind = HARMLESS;
  Schedule schedule;
};
Trial draw(std::uint64_t seed, const DetectorRules& rules);

// What the ranks did wrong, or nothing.
std::string broken_promise(const Trial& trial, const DetectorRules& rules);

}  // namespace composer::dist::simulation
