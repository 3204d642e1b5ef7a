#pragma once
#include "composer/core/export.h"
#include "composer/core/metric.h"
#include "composer/core/registry.h"

namespace composer::metrics {

// The metrics that can be made by name.
COMPOSER_EXPORT const Registry<Metrics>& registry();

}  // namespace composer::metrics
