#pragma once
#include <string>
#include <vector>

#include "composer/core/export.h"
#include "composer/core/state_dict.h"

namespace composer::saving {

// Removes what a glob fits: "optimizer/*", "rng", "callbacks/EarlyStopper". A * stands for any characters, also /. A
// path may begin with Composer's "state/", and then has Composer's names, as "state/optimizers". A glob that fits
// nothing is warned of.
COMPOSER_EXPORT void ignore_keys(StateDict& state, const std::vector<std::string>& globs);

}  // namespace composer::saving
