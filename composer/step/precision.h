#pragma once
#include <c10/core/Device.h>

#include "composer/core/state.h"

namespace composer {

// Throws ConfigError if this device cannot train in this precision.
void check_precision(Precision precision, at::Device device);

}  // namespace composer
