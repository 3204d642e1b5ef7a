#pragma once
#include "composer/core/export.h"

namespace composer {

// From now on libtorch's operators use this number of threads when this thread calls them; other threads, also those
// that are started later, are as they were. at::get_num_threads() tells.
COMPOSER_EXPORT void use_threads_here(int threads);

}  // namespace composer
