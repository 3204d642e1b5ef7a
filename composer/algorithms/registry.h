#pragma once
#include "composer/core/export.h"
#include "composer/core/plugins.h"
#include "composer/core/registry.h"

namespace composer::algorithms {

// The algorithms that can be created by name.
COMPOSER_EXPORT const Registry<Algorithms>& registry();

}  // namespace composer::algorithms
