#pragma once
// The entry points of libgomp that this library calls; the runtimes of LLVM and Intel have them too. They are declared
// here, because not every compiler has an omp.h, and because with -fopenmp some compilers would link another runtime
// than libtorch's: a second set of threads, which at::set_num_threads does not reach.
extern "C" {
void omp_set_num_threads(int threads);
int omp_get_num_threads();
int omp_get_thread_num();
// What compilers generate for `#pragma omp parallel`. With 0 threads, it uses as many as omp_set_num_threads set.
void GOMP_parallel(void (*body)(void*), void* data, unsigned threads, unsigned flags);
}
