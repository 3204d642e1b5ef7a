#pragma once
#include <cstdint>

namespace composer::data::detail {

// The memory layout of an image: planes of rows of pixels. With the channels innermost there is one plane.
struct PixelGrid {
  std::int64_t planes = 1, height = 1, width = 1;
  std::int64_t pixel_bytes = 1;  // size of the adjacent values of a pixel

  std::int64_t row_bytes() const { return width * pixel_bytes; }
  std::int64_t bytes() const { return planes * height * row_bytes(); }
};

// to[i] = from[i] * scale + shift. Rounds after each of the two operations, so all machines compute the same.
void pixels_to_float(const std::uint8_t* from, float* to, std::int64_t count, float scale, float shift);

// Like the function above, for rows of `width` values, with a scale and a shift for each value of a row.
void pixels_to_float(const std::uint8_t* from, float* to, std::int64_t rows, std::int64_t width, const float* scales,
                     const float* shifts);

// Copies pixels whose channels are innermost into one plane for each channel.
void to_planes(const std::uint8_t* from, std::uint8_t* to, std::int64_t pixels, std::int64_t channels);

// Copies the image with each row reversed.
void mirror(const void* from, void* to, const PixelGrid& grid);

// to[y][x] = from[y + down][x + right], 0 outside of the image.
void shift(const void* from, void* to, const PixelGrid& grid, std::int64_t down, std::int64_t right);

// Sets rows [top, bottom) of columns [left, right) to 0 in each plane.
void blacken(void* image, const PixelGrid& grid, std::int64_t top, std::int64_t bottom, std::int64_t left,
             std::int64_t right);

}  // namespace composer::data::detail
