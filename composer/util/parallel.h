#pragma once
#include <cstdint>

#include <c10/util/FunctionRef.h>

#include "composer/core/export.h"

namespace composer {

// at::parallel_for for every compiler. at::parallel_for is a template: where it is compiled without -fopenmp it
// silently runs in one thread, and where -fopenmp means another runtime than libtorch's it uses another set of threads.
//
// Calls f(first, last) for parts of [begin, end) on libtorch's threads (at::set_num_threads, use_threads_here), and
// returns when all calls have ended. The parts are those of at::parallel_for: with t the smaller of the number of
// threads and ceil((end - begin) / grain_size), each part has ceil((end - begin) / t) elements, and the last one what
// remains. If t is 1, or within another parallel_for, there is one call, on this thread. A grain_size of 0 is no limit.
//
// Within f, at::get_thread_num() returns the number of the thread. The first exception that f throws is rethrown here,
// once all calls have ended. Modes of the calling thread (gradients, autocast) do not apply on the other threads.
COMPOSER_EXPORT void parallel_for(std::int64_t begin, std::int64_t end, std::int64_t grain_size,
                                  c10::function_ref<void(std::int64_t first, std::int64_t last)> f);

}  // namespace composer
