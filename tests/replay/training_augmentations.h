#pragma once
#include "composer/core/plugins.h"
#include "tests/replay/training_run.h"

namespace composer::replay {

// Adds CutMix, CutOut, ColOut, ProgressiveResizing or SelectiveBackprop as a run of training.json has it; false for any
// other. They draw from the log, to which they keep a reference.
bool add_augmentation(Algorithms& list, const Json& one, RandomLog& log);

}  // namespace composer::replay
