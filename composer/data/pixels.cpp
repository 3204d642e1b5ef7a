// Compiled with -ffp-contract=off (CMakeLists.txt): a fused multiply-add rounds only once, and older processors have
// none.
#include "composer/data/pixels.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace composer::data::detail {
namespace {

struct AllAlike {
  float scale, shift;
  float operator()(float value, std::int64_t) const { return value * scale + shift; }
};

struct ByColumn {
  const float* __restrict scales, * __restrict shifts;
  float operator()(float value, std::int64_t column) const { return value * scales[column] + shifts[column]; }
};

template <class Scale>
__attribute__((always_inline)) inline void convert(const std::uint8_t* __restrict from, float* __restrict to,
                                                   std::int64_t rows, std::int64_t width, Scale scale) {
  for (; rows > 0; --rows, from += width, to += width)
    for (std::int64_t i = 0; i < width; ++i) to[i] = scale(static_cast<float>(from[i]), i);
}

template <class Scale>
void convert_any(const std::uint8_t* from, float* to, std::int64_t rows, std::int64_t width, Scale scale) {
  convert(from, to, rows, width, scale);
}

#if defined(__x86_64__)
template <class Scale>
__attribute__((target("avx2"))) void convert_avx2(const std::uint8_t* from, float* to, std::int64_t rows,
                                                  std::int64_t width, Scale scale) {
  convert(from, to, rows, width, scale);
}

// Vectorised by hand, because compilers widen the bytes in two steps and convert the rest of each row one by one.
template <class Scale>
__attribute__((target("avx512f,avx512bw,avx512vl"))) void convert_avx512(const std::uint8_t* from, float* to,
                                                                         std::int64_t rows, std::int64_t width,
                                                                         Scale scale) {
  constexpr std::int64_t kLanes = 16;
  for (; rows > 0; --rows, from += width, to += width)
    for (std::int64_t i = 0; i < width; i += kLanes) {
      const __mmask16 lanes = width - i >= kLanes ? 0xffff : static_cast<__mmask16>((1 << (width - i)) - 1);
      __m512 scales, shifts;
      if constexpr (std::is_same_v<Scale, ByColumn>) {
        scales = _mm512_maskz_loadu_ps(lanes, scale.scales + i);
        shifts = _mm512_maskz_loadu_ps(lanes, scale.shifts + i);
      } else {
        scales = _mm512_set1_ps(scale.scale);
        shifts = _mm512_set1_ps(scale.shift);
      }
      const __m512 values =
          _mm512_maskz_cvtepi32_ps(lanes, _mm512_maskz_cvtepu8_epi32(lanes, _mm_maskz_loadu_epi8(lanes, from + i)));
      _mm512_mask_storeu_ps(to + i, lanes, _mm512_add_ps(_mm512_mul_ps(values, scales), shifts));
    }
}
#endif

template <class Scale>
using Convert = void (*)(const std::uint8_t*, float*, std::int64_t, std::int64_t, Scale);

template <class Scale>
Convert<Scale> fastest() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) return convert_avx512<Scale>;
  if (__builtin_cpu_supports("avx2")) return convert_avx2<Scale>;
#endif
  return convert_any<Scale>;
}

// Callers pass a constant `bytes` where speed matters, so that a pixel is copied by one or two instructions.
__attribute__((always_inline)) inline void reverse(const char* from, char* to, std::int64_t width, std::size_t bytes) {
  from += (static_cast<std::size_t>(width) - 1) * bytes;
  for (; width > 0; --width, from -= bytes, to += bytes) std::memcpy(to, from, bytes);
}

// Reverses eight one-byte pixels at a time; the last eight may overlap the previous ones.
void reverse_bytes(const char* from, char* to, std::int64_t width) {
  if (width < 8) return reverse(from, to, width, 1);
  const auto eight = [&](std::int64_t x) {
    std::uint64_t pixels = 0;
    std::memcpy(&pixels, from + width - 8 - x, 8);
    pixels = __builtin_bswap64(pixels);
    std::memcpy(to + x, &pixels, 8);
  };
  for (std::int64_t x = 0; x < width - 8; x += 8) eight(x);
  eight(width - 8);
}

void reverse_row(const char* from, char* to, std::int64_t width, std::int64_t pixel_bytes) {
  switch (pixel_bytes) {
    case 1:
      return reverse_bytes(from, to, width);
    case 2:
      return reverse(from, to, width, 2);
    case 3:
      return reverse(from, to, width, 3);
    case 4:
      return reverse(from, to, width, 4);
    case 12:
      return reverse(from, to, width, 12);
    default:
      return reverse(from, to, width, static_cast<std::size_t>(pixel_bytes));
  }
}

void clear(char* data, std::int64_t bytes) { std::memset(data, 0, static_cast<std::size_t>(bytes)); }

}  // namespace

void pixels_to_float(const std::uint8_t* from, float* to, std::int64_t count, float scale, float shift) {
  static const Convert<AllAlike> convert = fastest<AllAlike>();
  convert(from, to, 1, count, {scale, shift});
}

void pixels_to_float(const std::uint8_t* from, float* to, std::int64_t rows, std::int64_t width, const float* scales,
                     const float* shifts) {
  static const Convert<ByColumn> convert = fastest<ByColumn>();
  convert(from, to, rows, width, {scales, shifts});
}

void to_planes(const std::uint8_t* __restrict from, std::uint8_t* __restrict to, std::int64_t pixels,
               std::int64_t channels) {
  if (channels == 3) {
    std::uint8_t* __restrict green = to + pixels;
    std::uint8_t* __restrict blue = green + pixels;
    for (std::int64_t i = 0; i < pixels; ++i, from += 3) {
      to[i] = from[0];
      green[i] = from[1];
      blue[i] = from[2];
    }
    return;
  }
  for (std::int64_t c = 0; c < channels; ++c)
    for (std::int64_t i = 0; i < pixels; ++i) *to++ = from[i * channels + c];
}

void mirror(const void* from, void* to, const PixelGrid& grid) {
  const auto* in = static_cast<const char*>(from);
  auto* out = static_cast<char*>(to);
  for (std::int64_t row = grid.planes * grid.height; row > 0; --row, in += grid.row_bytes(), out += grid.row_bytes())
    reverse_row(in, out, grid.width, grid.pixel_bytes);
}

void shift(const void* from, void* to, const PixelGrid& grid, std::int64_t down, std::int64_t right) {
  const std::int64_t row = grid.row_bytes(), plane = grid.height * row;
  const std::int64_t above = std::clamp<std::int64_t>(-down, 0, grid.height) * row;
  const std::int64_t below = std::clamp<std::int64_t>(down, 0, grid.height) * row;
  const std::int64_t before = std::clamp<std::int64_t>(-right, 0, grid.width) * grid.pixel_bytes;
  const std::int64_t after = std::clamp<std::int64_t>(right, 0, grid.width) * grid.pixel_bytes;
  const auto* in = static_cast<const char*>(from);
  auto* out = static_cast<char*>(to);
  for (std::int64_t p = 0; p < grid.planes; ++p, in += plane, out += plane) {
    clear(out, above);
    clear(out + plane - below, below);
    const std::int64_t kept = plane - above - below;
    // The kept rows are copied as one piece, because their distances are equal in both images. Pixels that come from a
    // neighbouring row are then cleared.
    if (kept > before + after)
      std::memcpy(out + above + before, in + below + after, static_cast<std::size_t>(kept - before - after));
    if (before > 0)
      for (std::int64_t y = above; y < plane - below; y += row) clear(out + y, before);
    if (after > 0)
      for (std::int64_t y = above; y < plane - below; y += row) clear(out + y + row - after, after);
  }
}

void blacken(void* image, const PixelGrid& grid, std::int64_t top, std::int64_t bottom, std::int64_t left,
             std::int64_t right) {
  const std::int64_t row = grid.row_bytes();
  auto* plane = static_cast<char*>(image);
  for (std::int64_t p = 0; p < grid.planes; ++p, plane += grid.height * row)
    for (std::int64_t y = top; y < bottom; ++y)
      clear(plane + y * row + left * grid.pixel_bytes, (right - left) * grid.pixel_bytes);
}

}  // namespace composer::data::detail
