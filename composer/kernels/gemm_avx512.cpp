// Compiled for AVX-512 (CMakeLists.txt); called only on processors that have it.
#include "composer/kernels/micro_kernel.h"

#if defined(__x86_64__)
#if defined(__GNUC__) && !defined(__clang__)
// g++ 12 warns about its own intrinsics.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

namespace composer::kernels {
namespace {

struct Lanes {
  using V = __m512;
  using Mask = __mmask16;
  static constexpr std::int64_t kWidth = 16;

  static Mask mask(std::int64_t n) { return static_cast<Mask>(n >= kWidth ? 0xffff : n <= 0 ? 0 : (1 << n) - 1); }
  static V zero() { return _mm512_setzero_ps(); }
  static V broadcast(const float* from) { return _mm512_set1_ps(*from); }
  static V load(const float* from) { return _mm512_loadu_ps(from); }
  static V load(const float* from, Mask mask) { return _mm512_maskz_loadu_ps(mask, from); }
  static void store(float* to, V value) { _mm512_storeu_ps(to, value); }
  static void store(float* to, Mask mask, V value) { _mm512_mask_storeu_ps(to, mask, value); }
  static V multiply_add(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
  static V multiply(V a, V b) { return _mm512_mul_ps(a, b); }
  static V add(V a, V b) { return _mm512_add_ps(a, b); }
  static V set(float value) { return _mm512_set1_ps(value); }
  static V subtract(V a, V b) { return _mm512_sub_ps(a, b); }
  static V divide(V a, V b) { return _mm512_div_ps(a, b); }
  static V negative_multiply_add(V a, V b, V c) { return _mm512_fnmadd_ps(a, b, c); }
  static V at_most(V limit, V a) { return _mm512_min_ps(limit, a); }   // returns the second argument if either is NaN
  static V at_least(V limit, V a) { return _mm512_max_ps(limit, a); }  // returns the second argument if either is NaN
  static V magnitude(V a) {
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(a), _mm512_set1_epi32(0x7fffffff)));
  }
  static V with_sign(V a, V sign) {
    return _mm512_castsi512_ps(_mm512_or_si512(
        _mm512_castps_si512(a), _mm512_andnot_si512(_mm512_set1_epi32(0x7fffffff), _mm512_castps_si512(sign))));
  }
  // 2 to the power of the integer in the low bits of a
  static V power_of_two(V a) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(_mm512_castps_si512(a), _mm512_set1_epi32(127)), 23));
  }
  static V widen(const std::uint16_t* from) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }
  static void narrow(V value, std::uint16_t* to) {
    const __m512i number = _mm512_castps_si512(value);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(number, 16), _mm512_set1_epi32(1));
    const __m512i sum = _mm512_add_epi32(number, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __m512i rounded = _mm512_mask_mov_epi32(
        _mm512_srli_epi32(sum, 16), _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q), _mm512_set1_epi32(0x7fc0));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi32_epi16(rounded));
  }
  static V relu(V a) { return _mm512_max_ps(zero(), a); }  // returns `a` if it is NaN

  // r[k] = column k of 16 rows
  static void load_columns(const float* from, std::int64_t row, V (&r)[16]) {
    // Combines the four quarters of a vector from different rows; this needs no shuffle.
#pragma GCC unroll 4
    for (std::int64_t q = 0; q < 4; ++q) {
      V t[4];
#pragma GCC unroll 4
      for (int s = 0; s < 4; ++s) {
        const float* first = from + s * row + 4 * q;
        t[s] = _mm512_broadcast_f32x4(_mm_loadu_ps(first));
        t[s] = _mm512_mask_broadcast_f32x4(t[s], 0x00f0, _mm_loadu_ps(first + 4 * row));
        t[s] = _mm512_mask_broadcast_f32x4(t[s], 0x0f00, _mm_loadu_ps(first + 8 * row));
        t[s] = _mm512_mask_broadcast_f32x4(t[s], 0xf000, _mm_loadu_ps(first + 12 * row));
      }
      const V low = _mm512_unpacklo_ps(t[0], t[1]), high = _mm512_unpackhi_ps(t[0], t[1]);
      const V low_below = _mm512_unpacklo_ps(t[2], t[3]), high_below = _mm512_unpackhi_ps(t[2], t[3]);
      r[4 * q] = low_pairs(low, low_below);
      r[4 * q + 1] = high_pairs(low, low_below);
      r[4 * q + 2] = low_pairs(high, high_below);
      r[4 * q + 3] = high_pairs(high, high_below);
    }
  }

  static void transpose(V (&r)[16]) {
    V t[16];
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
      t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
      t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
      r[i] = low_pairs(t[i], t[i + 2]);
      r[i + 1] = high_pairs(t[i], t[i + 2]);
      r[i + 2] = low_pairs(t[i + 1], t[i + 3]);
      r[i + 3] = high_pairs(t[i + 1], t[i + 3]);
    }
    // now quarter q of r[i + j] is column 4 q + j of the rows i to i + 3
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const V even = _mm512_shuffle_f32x4(r[j], r[4 + j], 0x88), odd = _mm512_shuffle_f32x4(r[j], r[4 + j], 0xdd);
      const V even_below = _mm512_shuffle_f32x4(r[8 + j], r[12 + j], 0x88),
              odd_below = _mm512_shuffle_f32x4(r[8 + j], r[12 + j], 0xdd);
      r[j] = _mm512_shuffle_f32x4(even, even_below, 0x88);
      r[8 + j] = _mm512_shuffle_f32x4(even, even_below, 0xdd);
      r[4 + j] = _mm512_shuffle_f32x4(odd, odd_below, 0x88);
      r[12 + j] = _mm512_shuffle_f32x4(odd, odd_below, 0xdd);
    }
  }

 private:
  static V low_pairs(V a, V b) {
    return _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
  }
  static V high_pairs(V a, V b) {
    return _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
  }
};

}  // namespace

const MicroKernels& avx512_kernels() {
  static constexpr MicroKernels kKernels = Table<Lanes, 14>::kernels("AVX-512");
  return kKernels;
}

}  // namespace composer::kernels
#endif
