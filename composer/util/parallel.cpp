#include "composer/util/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>

#include <ATen/Parallel.h>
#include <c10/util/ParallelGuard.h>

#include "composer/util/openmp.h"

namespace composer {
namespace {

using Function = c10::function_ref<void(std::int64_t, std::int64_t)>;

void call(const Function& f, std::int64_t first, std::int64_t last, int thread) {
  const at::internal::ThreadIdGuard number(thread);
  const c10::ParallelGuard guard(true);
  f(first, last);
}

struct Region {
  std::int64_t begin, end, grain_size;
  const Function& f;
  std::atomic_flag failed;
  std::exception_ptr error;

  // Runs on each thread of the team, which may have fewer threads than requested.
  void run() {
    const std::int64_t size = end - begin;
    std::int64_t parts = omp_get_num_threads();
    if (grain_size > 0) parts = std::min(parts, at::divup(size, grain_size));
    const int thread = omp_get_thread_num();
    const std::int64_t part = at::divup(size, parts), first = begin + thread * part;
    if (first >= end) return;
    try {
      call(f, first, std::min(end, first + part), thread);
    } catch (...) {
      if (!failed.test_and_set()) error = std::current_exception();
    }
  }
};

}  // namespace

void parallel_for(std::int64_t begin, std::int64_t end, std::int64_t grain_size, Function f) {
  if (begin >= end) return;
  const std::int64_t size = end - begin;
  // get_num_threads() also sets the number of threads of this thread, if it has none yet.
  if (size == 1 || size <= grain_size || at::in_parallel_region() || at::get_num_threads() == 1)
    return call(f, begin, end, 0);
  Region region{.begin = begin, .end = end, .grain_size = grain_size, .f = f, .failed = {}, .error = nullptr};
  GOMP_parallel([](void* data) { static_cast<Region*>(data)->run(); }, &region, 0, 0);
  if (region.error) std::rethrow_exception(region.error);
}

}  // namespace composer
