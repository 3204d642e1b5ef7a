#include "composer/util/threads_here.h"

#include <ATen/Parallel.h>

#include "composer/util/openmp.h"

// If libtorch is built with MKL, MKL has a thread-local number of its own.
extern "C" __attribute__((weak)) int MKL_Set_Num_Threads_Local(int threads);

namespace composer {

// at::set_num_threads() would not do: threads that are started later, including those of autograd, would inherit its
// number.
void use_threads_here(int threads) {
  // The first parallel operator of a thread sets its number of threads: once in libtorch and, if this library is linked
  // statically into a program that is compiled with -fopenmp, once in that program. This call comes first.
  at::get_num_threads();
  at::internal::lazy_init_num_threads();
  omp_set_num_threads(threads);
  if (MKL_Set_Num_Threads_Local) MKL_Set_Num_Threads_Local(threads);
}

}  // namespace composer
