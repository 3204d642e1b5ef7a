#pragma once
#include "composer/core/export.h"

namespace composer {

// Sets how many threads libtorch's operators use when this thread calls them. Other threads, including those that are
// started later, are not affected. at::get_num_threads() returns the number.
COMPOSER_EXPORT void use_threads_here(int threads);

}  // namespace composer
