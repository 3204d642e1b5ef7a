#pragma once
#include "composer/kernels/products.h"
#include "composer/trainer/process_scope.h"
#include "composer/util/own_random.h"

namespace composer {

// The settings of the process that a trainer needs while it runs. When it does not run, the process has its own
// settings.
struct ProcessState {
  OwnRandom random;
  kernels::ProductTable products;  // which matrix products our kernels compute
  ProcessSettings settings;
};

}  // namespace composer
