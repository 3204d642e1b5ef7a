#include "composer/data/one_thread.h"

#ifdef _OPENMP
#include <omp.h>
#endif

#include <ATen/Parallel.h>

// MKL, where libtorch has it inside, keeps a number of its own.
extern "C" __attribute__((weak)) int MKL_Set_Num_Threads_Local(int threads);

namespace composer::data::detail {

// at::set_num_threads(1) would also be what threads get that are started later, among them those of autograd.
void keep_to_one_thread() {
  // A thread's first parallel operator sets its number of threads, once in libtorch and once in this library: first.
  at::get_num_threads();
  at::internal::lazy_init_num_threads();
#ifdef _OPENMP
  omp_set_num_threads(1);
#endif
  if (MKL_Set_Num_Threads_Local) MKL_Set_Num_Threads_Local(1);
}

}  // namespace composer::data::detail
