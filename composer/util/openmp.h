#pragma once
// The entry points of libgomp that we call, which LLVM's and Intel's runtime have as well. Declared here, because not
// every compiler has an omp.h, and by -fopenmp some would link a runtime other than libtorch's: a second set of
// threads, to which at::set_num_threads says nothing.
extern "C" {
void omp_set_num_threads(int threads);
int omp_get_num_threads();
int omp_get_thread_num();
// What compilers make of `#pragma omp parallel`; 0 threads: as many as omp_set_num_threads says.
void GOMP_parallel(void (*body)(void*), void* data, unsigned threads, unsigned flags);
}
