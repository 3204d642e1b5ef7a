#pragma once

namespace composer::data::detail {

// From now on libtorch's operators run on one processor when this thread calls them; other threads are as they were.
// Without it each thread that makes batches would open an OpenMP team as large as the one that trains.
void keep_to_one_thread();

}  // namespace composer::data::detail
