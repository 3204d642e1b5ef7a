// How a step of many tensors becomes one parallel region. Internal.
#pragma once
#include <span>

#include "composer/optim/kernels.h"

namespace composer::optim::detail {

// In one parallel region, each thread the same share of all elements. The result does not depend on the threads.
void run(std::span<const Slice> slices);

}  // namespace composer::optim::detail
