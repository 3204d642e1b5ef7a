// Describes the options of GradScaler. Internal.
#pragma once
#include <vector>

#include "composer/core/option.h"
#include "composer/optim/grad_scaler.h"

namespace composer::optim {

std::vector<Option<GradScalerOptions>> grad_scaler_options();

}  // namespace composer::optim
