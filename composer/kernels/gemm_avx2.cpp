// Compiled for AVX2 and FMA (CMakeLists.txt); called on processors that have them.
#include "composer/kernels/micro_kernel.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace composer::kernels {
namespace {

struct Lanes {
  using V = __m256;
  using Mask = __m256i;
  static constexpr int kWidth = 8;

  static Mask mask(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static V zero() { return _mm256_setzero_ps(); }
  static V broadcast(const float* from) { return _mm256_broadcast_ss(from); }
  static V load(const float* from) { return _mm256_loadu_ps(from); }
  static V load(const float* from, Mask mask) { return _mm256_maskload_ps(from, mask); }
  static void store(float* to, Mask mask, V value) { _mm256_maskstore_ps(to, mask, value); }
  static V multiply_add(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
  static V multiply(V a, V b) { return _mm256_mul_ps(a, b); }
  static V add(V a, V b) { return _mm256_add_ps(a, b); }
  static V relu(V a) { return _mm256_max_ps(zero(), a); }  // the second if one is NaN

  static void transpose(V (&r)[8]) {
    V t[8];
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
      t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
      t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {
      r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
      r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
      r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
      r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    // now half h of r[i + j] is column 4 h + j of the rows i to i + 3
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const V above = r[j], below = r[4 + j];
      r[j] = _mm256_permute2f128_ps(above, below, 0x20);
      r[4 + j] = _mm256_permute2f128_ps(above, below, 0x31);
    }
  }
};

}  // namespace

const MicroKernels& avx2_kernels() {
  static constexpr MicroKernels kKernels = Table<Lanes, 6>::kernels("AVX2");
  return kKernels;
}

}  // namespace composer::kernels
#endif
