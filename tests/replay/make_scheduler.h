#pragma once
#include "composer/optim/schedule.h"
#include "tests/replay/compare.h"

namespace composer::replay {

// From {"class": name, ...constructor arguments}; what is left out has the library's default. Empty for a class that
// the library does not have.
optim::Scheduler make_scheduler(const Json& recorded);

}  // namespace composer::replay
