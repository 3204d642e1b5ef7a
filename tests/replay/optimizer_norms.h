// What OptimizerMonitor logs in the programs of logged_keys.json.
#pragma once
#include "tests/replay/replay.h"

namespace composer::replay {

// Without a context: to be listed only.
Rule optimizer_norms_rule(const Context* context);

}  // namespace composer::replay
