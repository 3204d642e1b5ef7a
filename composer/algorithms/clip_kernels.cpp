// Compiled with -ffp-contract=off (CMakeLists.txt): a fused multiply-add rounds only once, and older processors have
// none.
#include "composer/algorithms/clip_kernels.h"

#include <cstring>

#include "composer/util/avx512.h"

namespace composer::algorithms::detail {
namespace {

constexpr std::int64_t kLanes = 8, kSums = 4;
// Elements to prefetch; the processor's own prefetching stops at the end of a page.
constexpr std::int64_t kAhead = 256;
using Floats = float __attribute__((vector_size(sizeof(float) * kLanes)));
using Doubles = double __attribute__((vector_size(sizeof(double) * kLanes)));
template <class T>
struct LanesOf {
  using Type = Doubles;
};
template <>
struct LanesOf<float> {
  using Type = Floats;
};

// Sums squares in doubles, in several independent sums.
template <class T, class Values>
__attribute__((always_inline)) inline double sum_with(const T* values, std::int64_t n) {
  Doubles sums[kSums] = {};
  // Reading several rows at once is faster than one after another.
  const std::int64_t each = n / kSums / kLanes * kLanes;
  for (std::int64_t i = 0; i < each; i += kLanes)
    for (std::int64_t s = 0; s < kSums; ++s) {
      Values loaded;
      std::memcpy(&loaded, values + s * each + i, sizeof(loaded));
      __builtin_prefetch(values + s * each + i + kAhead);
      const Doubles wide = __builtin_convertvector(loaded, Doubles);
      sums[s] += wide * wide;
    }
  std::int64_t i = kSums * each;
  double sum = 0;
  for (; i < n; ++i) sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  Doubles all = {};
  for (const Doubles& part : sums) all += part;
  for (std::int64_t lane = 0; lane < kLanes; ++lane) sum += all[lane];
  return sum;
}

template <class T>
__attribute__((always_inline)) inline void multiply_with(T* __restrict values, std::int64_t n, T factor) {
  for (std::int64_t i = 0; i < n; ++i) values[i] *= factor;
}

template <class T>
struct Kernels {
  double (*sum)(const T*, std::int64_t);
  void (*multiply)(T*, std::int64_t, T);
};

template <class T>
double sum_any(const T* values, std::int64_t n) {
  return sum_with<T, typename LanesOf<T>::Type>(values, n);
}
template <class T>
void multiply_any(T* values, std::int64_t n, T factor) {
  multiply_with(values, n, factor);
}

#if defined(__x86_64__)
template <class T>
__attribute__((target("avx2"))) double sum_avx2(const T* values, std::int64_t n) {
  return sum_with<T, typename LanesOf<T>::Type>(values, n);
}
template <class T>
__attribute__((target("avx2"))) void multiply_avx2(T* values, std::int64_t n, T factor) {
  multiply_with(values, n, factor);
}
template <class T>
__attribute__((COMPOSER_AVX512("avx512f"))) double sum_avx512(const T* values, std::int64_t n) {
  return sum_with<T, typename LanesOf<T>::Type>(values, n);
}
template <class T>
__attribute__((COMPOSER_AVX512("avx512f"))) void multiply_avx512(T* values, std::int64_t n, T factor) {
  multiply_with(values, n, factor);
}
#endif

template <class T>
Kernels<T> fastest() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return {sum_avx512<T>, multiply_avx512<T>};
  if (__builtin_cpu_supports("avx2")) return {sum_avx2<T>, multiply_avx2<T>};
#endif
  return {sum_any<T>, multiply_any<T>};
}

template <class T>
const Kernels<T>& kernels() {
  static const Kernels<T> found = fastest<T>();
  return found;
}

}  // namespace

double sum_of_squares(const float* values, std::int64_t n) { return kernels<float>().sum(values, n); }
double sum_of_squares(const double* values, std::int64_t n) { return kernels<double>().sum(values, n); }
void multiply(float* values, std::int64_t n, float factor) { kernels<float>().multiply(values, n, factor); }
void multiply(double* values, std::int64_t n, double factor) { kernels<double>().multiply(values, n, factor); }

}  // namespace composer::algorithms::detail
