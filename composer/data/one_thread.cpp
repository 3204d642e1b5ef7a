#include "composer/data/one_thread.h"

#include "composer/util/threads_here.h"

namespace composer::data::detail {

void keep_to_one_thread() { use_threads_here(1); }

}  // namespace composer::data::detail
