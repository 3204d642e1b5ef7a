#pragma once

namespace composer::data::detail {

// Makes libtorch's operators use one processor on the calling thread from now on; other threads are not affected.
// Otherwise each worker would start an OpenMP team as large as that of the training thread.
void keep_to_one_thread();

}  // namespace composer::data::detail
