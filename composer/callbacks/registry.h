#pragma once
#include "composer/core/export.h"
#include "composer/core/plugins.h"
#include "composer/core/registry.h"

namespace composer::callbacks {

// The callbacks that can be created by name.
COMPOSER_EXPORT const Registry<Callbacks>& registry();

}  // namespace composer::callbacks
