#include "composer/util/threads_here.h"

#include <ATen/Parallel.h>

#include "composer/util/openmp.h"

// MKL, where libtorch has it inside, keeps a number of its own.
extern "C" __attribute__((weak)) int MKL_Set_Num_Threads_Local(int threads);

namespace composer {

// Not at::set_num_threads(): threads that are started later, among them those of autograd, would begin with its number.
void use_threads_here(int threads) {
  // A thread's first parallel operator sets its number of threads, once in libtorch and, where this
  // library is linked statically, once in a program that is compiled with -fopenmp: first.
  at::get_num_threads();
  at::internal::lazy_init_num_threads();
  omp_set_num_threads(threads);
  if (MKL_Set_Num_Threads_Local) MKL_Set_Num_Threads_Local(threads);
}

}  // namespace composer
