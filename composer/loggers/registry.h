#pragma once
#include "composer/core/export.h"
#include "composer/core/plugins.h"
#include "composer/core/registry.h"

namespace composer::loggers {

// The loggers that can be created by name.
COMPOSER_EXPORT const Registry<Loggers>& registry();

}  // namespace composer::loggers
