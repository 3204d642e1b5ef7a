// Where EarlyStopper and ThresholdStopper end a run whose metric has scripted values.
#pragma once
#include "tests/replay/compare.h"

namespace composer::replay {

Json stopper_recording(const Json& c);
Json stop(const Json& c);
Rules stopper_rules();

}  // namespace composer::replay
