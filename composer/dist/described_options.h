// Describes the options of processes that train together. Internal.
#pragma once
#include <vector>

#include "composer/core/option.h"
#include "composer/dist/data_parallel.h"
#include "composer/dist/options.h"

namespace composer::dist {

// The valid values of zero_stage, for messages.
inline constexpr const char* kZeroStages = "0, 1 (optimizer state) or 2 (also gradients)";

std::vector<Option<DistributedOptions>> distributed_options();
std::vector<Option<DataParallelOptions>> data_parallel_options();

}  // namespace composer::dist
