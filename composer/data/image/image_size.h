#pragma once
#include <cstdint>

namespace composer::data {

// Height and width in pixels, or one number, whose meaning is up to who takes it: of 224, Resize makes the shorter side
// and CenterCrop both.
struct ImageSize {
  ImageSize() = default;
  ImageSize(std::int64_t side) : height(side) {}
  ImageSize(std::int64_t height, std::int64_t width) : height(height), width(width) {}

  bool is_one_number() const { return width == 0; }
  ImageSize square() const { return is_one_number() ? ImageSize(height, height) : *this; }
  bool operator==(const ImageSize&) const = default;

  std::int64_t height = 0, width = 0;
};

}  // namespace composer::data
