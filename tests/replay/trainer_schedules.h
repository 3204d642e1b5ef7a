#pragma once
#include "tests/replay/replay.h"

namespace composer::replay {

// The learning rates of a real run: cases of schedulers.json with kind "trainer".
Outcome run_trainer_schedule(const Json& c, const Context& context);
// Without a context and rates: to be listed only.
Rules trainer_schedule_rules(const Context* context, const Json* due);

// What comes out, and for each of its rows the rates that have to be in force there.
Json replay_schedule(const Json& recorded, Json& due);

}  // namespace composer::replay
