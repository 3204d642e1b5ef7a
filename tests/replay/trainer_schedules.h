#pragma once
#include "tests/replay/compare.h"

namespace composer::replay {

// The learning rates of a real run: cases of schedulers.json with kind "trainer".
Outcome run_trainer_schedule(const Json& c);
Rules trainer_schedule_rules();

}  // namespace composer::replay
