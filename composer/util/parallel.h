#pragma once
#include <cstdint>

#include <c10/util/FunctionRef.h>

#include "composer/core/export.h"

namespace composer {

// at::parallel_for for every compiler: that one is a template, which runs in one thread and says nothing where it is
// compiled without -fopenmp, and with another set of threads than libtorch's where -fopenmp means another runtime.
//
// Calls f(first, last) for parts of [begin, end) on libtorch's threads (at::set_num_threads, use_threads_here), and
// returns when all have ended. The parts are at::parallel_for's: with t the smaller of the number of threads and
// ceil((end - begin) / grain_size), each has ceil((end - begin) / t) elements and the last what remains. All in one
// call on this thread if t is 1, and within another parallel_for. A grain_size of 0 is no limit.
//
// Within f, at::get_thread_num() tells the thread. The first exception that f throws is thrown again here, once all
// parts have ended. Modes of the calling thread (gradients, autocast) do not apply on the others.
COMPOSER_EXPORT void parallel_for(std::int64_t begin, std::int64_t end, std::int64_t grain_size,
                                  c10::function_ref<void(std::int64_t first, std::int64_t last)> f);

}  // namespace composer
