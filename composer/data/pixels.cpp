// Compiled with -ffp-contract=off (CMakeLists.txt): a fused multiply-add rounds once, and only newer machines have it.
#include "composer/data/pixels.h"

#include <algorithm>
#include <cstring>

namespace composer::data::detail {
namespace {

__attribute__((always_inline)) inline void convert(const std::uint8_t* __restrict from, float* __restrict to,
                                                   std::int64_t count, float scale, float shift) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(from[i]) * scale + shift;
}

void convert_any(const std::uint8_t* from, float* to, std::int64_t count, float scale, float shift) {
  convert(from, to, count, scale, shift);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) void convert_avx2(const std::uint8_t* from, float* to, std::int64_t count, float scale,
                                                  float shift) {
  convert(from, to, count, scale, shift);
}

__attribute__((target("avx512f,avx512bw,avx512vl,prefer-vector-width=512"))) void convert_avx512(
    const std::uint8_t* from, float* to, std::int64_t count, float scale, float shift) {
  convert(from, to, count, scale, shift);
}
#endif

using Convert = void (*)(const std::uint8_t*, float*, std::int64_t, float, float);
Convert fastest() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) return convert_avx512;
  if (__builtin_cpu_supports("avx2")) return convert_avx2;
#endif
  return convert_any;
}

template <class Pixel>
void mirror(void* data, std::int64_t rows, std::int64_t width) {
  auto* row = static_cast<Pixel*>(data);
  for (; rows > 0; --rows, row += width) std::reverse(row, row + width);
}

}  // namespace

void pixels_to_float(const std::uint8_t* from, float* to, std::int64_t count, float scale, float shift) {
  static const Convert convert = fastest();
  convert(from, to, count, scale, shift);
}

void pixels_to_float(const std::uint8_t* from, float* to, std::int64_t pixels, std::int64_t channels,
                     const float* scales, const float* shifts) {
  for (; pixels > 0; --pixels, from += channels, to += channels)
    for (std::int64_t c = 0; c < channels; ++c) to[c] = static_cast<float>(from[c]) * scales[c] + shifts[c];
}

void mirror_rows(void* data, std::int64_t rows, std::int64_t width, std::int64_t pixel_bytes) {
  if (pixel_bytes == 1) return mirror<std::uint8_t>(data, rows, width);
  if (pixel_bytes == 4) return mirror<std::uint32_t>(data, rows, width);
  auto* row = static_cast<char*>(data);
  for (; rows > 0; --rows, row += width * pixel_bytes)
    for (std::int64_t left = 0, right = width - 1; left < right; ++left, --right)
      std::swap_ranges(row + left * pixel_bytes, row + (left + 1) * pixel_bytes, row + right * pixel_bytes);
}

}  // namespace composer::data::detail
