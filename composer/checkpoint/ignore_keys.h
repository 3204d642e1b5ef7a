#pragma once
#include <string>
#include <vector>

#include "composer/core/export.h"
#include "composer/core/state_dict.h"

namespace composer::saving {

// Removes the entries that fit a glob: "optimizer/*", "rng", "callbacks/EarlyStopper". A * stands for any characters,
// including /. A glob that begins with Composer's "state/" uses Composer's names, such as "state/optimizers". Returns
// the globs that fit nothing.
COMPOSER_EXPORT std::vector<std::string> leave_out(StateDict& state, const std::vector<std::string>& globs);
// leave_out(), and a warning that begins with the option for globs that fit nothing.
COMPOSER_EXPORT void ignore_keys(StateDict& state, const std::vector<std::string>& globs, const std::string& option);

}  // namespace composer::saving
