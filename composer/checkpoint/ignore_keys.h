#pragma once
#include <string>
#include <vector>

#include "composer/core/export.h"
#include "composer/core/state_dict.h"

namespace composer::saving {

// Removes the entries that match a glob: "optimizer/*", "rng", "callbacks/EarlyStopper". A * matches any characters,
// including /. A glob that begins with Composer's "state/" uses Composer's names, such as "state/optimizers". Returns
// the globs that match nothing.
COMPOSER_EXPORT std::vector<std::string> leave_out(StateDict& state, const std::vector<std::string>& globs);
// Calls leave_out(), and warns of globs that match nothing. The warning begins with the option's name.
COMPOSER_EXPORT void ignore_keys(StateDict& state, const std::vector<std::string>& globs, const std::string& option);

}  // namespace composer::saving
