#pragma once
#include <cstdint>

namespace composer::data::detail {

// to[i] = from[i] * scale + shift, rounded after each of the two, so every machine gets the same.
void pixels_to_float(const std::uint8_t* from, float* to, std::int64_t count, float scale, float shift);

// The same for pixels of `channels` values each, every channel with its own scale and shift.
void pixels_to_float(const std::uint8_t* from, float* to, std::int64_t pixels, std::int64_t channels,
                     const float* scales, const float* shifts);

// Reverses each of `rows` rows of `width` pixels of `pixel_bytes` bytes, in place.
void mirror_rows(void* data, std::int64_t rows, std::int64_t width, std::int64_t pixel_bytes);

}  // namespace composer::data::detail
