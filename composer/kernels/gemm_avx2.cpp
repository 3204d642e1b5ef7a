// Compiled for AVX2 and FMA (CMakeLists.txt); called only on processors that have them.
#include "composer/kernels/micro_kernel.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace composer::kernels {
namespace {

struct Lanes {
  using V = __m256;
  using Mask = __m256i;
  static constexpr std::int64_t kWidth = 8;

  static Mask mask(std::int64_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static V zero() { return _mm256_setzero_ps(); }
  static V broadcast(const float* from) { return _mm256_broadcast_ss(from); }
  static V load(const float* from) { return _mm256_loadu_ps(from); }
  static V load(const float* from, Mask mask) { return _mm256_maskload_ps(from, mask); }
  static void store(float* to, V value) { _mm256_storeu_ps(to, value); }
  static void store(float* to, Mask mask, V value) { _mm256_maskstore_ps(to, mask, value); }
  static V multiply_add(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
  static V multiply(V a, V b) { return _mm256_mul_ps(a, b); }
  static V add(V a, V b) { return _mm256_add_ps(a, b); }
  static V set(float value) { return _mm256_set1_ps(value); }
  static V subtract(V a, V b) { return _mm256_sub_ps(a, b); }
  static V divide(V a, V b) { return _mm256_div_ps(a, b); }
  static V negative_multiply_add(V a, V b, V c) { return _mm256_fnmadd_ps(a, b, c); }
  static V at_most(V limit, V a) { return _mm256_min_ps(limit, a); }   // returns the second argument if either is NaN
  static V at_least(V limit, V a) { return _mm256_max_ps(limit, a); }  // returns the second argument if either is NaN
  static V magnitude(V a) { return _mm256_andnot_ps(set(-0.0F), a); }
  static V with_sign(V a, V sign) { return _mm256_or_ps(a, _mm256_and_ps(set(-0.0F), sign)); }
  // 2 to the power of the integer in the low bits of a
  static V power_of_two(V a) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_castps_si256(a), _mm256_set1_epi32(127)), 23));
  }
  static V widen(const std::uint16_t* from) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
  static void narrow(V value, std::uint16_t* to) {
    const __m256i number = _mm256_castps_si256(value);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(number, 16), _mm256_set1_epi32(1));
    const __m256i sum = _mm256_add_epi32(number, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
    const __m256i rounded = _mm256_blendv_epi8(_mm256_srli_epi32(sum, 16), _mm256_set1_epi32(0x7fc0), is_nan);
    const __m128i low = _mm256_castsi256_si128(rounded), high = _mm256_extracti128_si256(rounded, 1);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm_packus_epi32(low, high));
  }
  static V relu(V a) { return _mm256_max_ps(zero(), a); }  // returns `a` if it is NaN

  // r[k] = column k of 8 rows
  static void load_columns(const float* from, std::int64_t row, V (&r)[8]) {
    // Combines the two halves of a vector from different rows; this needs no shuffle.
#pragma GCC unroll 2
    for (std::int64_t h = 0; h < 2; ++h) {
      V t[4];
#pragma GCC unroll 4
      for (int s = 0; s < 4; ++s) {
        const float* first = from + s * row + 4 * h;
        t[s] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(first)), _mm_loadu_ps(first + 4 * row), 1);
      }
      const V low = _mm256_unpacklo_ps(t[0], t[1]), high = _mm256_unpackhi_ps(t[0], t[1]);
      const V low_below = _mm256_unpacklo_ps(t[2], t[3]), high_below = _mm256_unpackhi_ps(t[2], t[3]);
      r[4 * h] = _mm256_shuffle_ps(low, low_below, 0x44);
      r[4 * h + 1] = _mm256_shuffle_ps(low, low_below, 0xee);
      r[4 * h + 2] = _mm256_shuffle_ps(high, high_below, 0x44);
      r[4 * h + 3] = _mm256_shuffle_ps(high, high_below, 0xee);
    }
  }

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
