#pragma once
#include "composer/kernels/products.h"
#include "composer/trainer/process_scope.h"
#include "composer/util/own_random.h"

namespace composer {

// What a trainer wants of the process while it runs; when it does not, the process is as before.
struct ProcessState {
  OwnRandom random;
  kernels::ProductTable products;  // which products of matrices our kernels compute
  ProcessSettings settings;
};

}  // namespace composer
