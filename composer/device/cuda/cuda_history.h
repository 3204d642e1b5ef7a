#pragma once
#include <memory>

#include "composer/device/allocator_history.h"

namespace composer::cuda {

// A user of the shared history of the CUDA caching allocator. Null unless the program contains libtorch_cuda.
std::unique_ptr<AllocatorHistory> history();

}  // namespace composer::cuda
