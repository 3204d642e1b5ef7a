#pragma once
#include <optional>
#include <string>

#include "tests/property/player.h"

namespace composer::property {

// Runs the program in a folder of its own, and says which rule did not hold; nothing: all did. The process has no
// handlers of signals before, and has none after.
std::optional<Failure> run(const Program& program);
// Two at a time, each with a trainer of its own.
std::optional<Failure> run_in_threads(const Program& one, const Program& other);

}  // namespace composer::property
