// Describes which checkpoints of a run are written. Internal.
#pragma once
#include <vector>

#include "composer/checkpoint/run_saver.h"
#include "composer/core/option.h"

namespace composer::saving {

std::vector<Option<RunSaverOptions>> run_saver_options();

}  // namespace composer::saving
