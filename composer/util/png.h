#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/log_records.h"

namespace composer::util {

// PNG files of images of one size.
struct Pngs {
  std::int64_t width = 0, height = 0;
  std::vector<std::string> files;
};

// The pixels of the first `most` images as uint8 [N, H, W, C]. The images must have been checked, and be on the host.
// Floating-point values below 0, or NaN, become 0; values above 1 become 255.
at::Tensor image_pixels(const LogImages& images, std::int64_t most);

// The classes of pixels as colors, uint8 [N, H, W, 3]. The first 20 classes have different colors.
at::Tensor mask_pixels(const at::Tensor& classes, std::int64_t most);

// Encodes pixels that image_pixels() or mask_pixels() returned. Throws Error if an image is too large for a PNG.
Pngs png_files(const at::Tensor& pixels);

inline Pngs png_files(const LogImages& images, std::int64_t most) { return png_files(image_pixels(images, most)); }
inline Pngs mask_png_files(const at::Tensor& classes, std::int64_t most) {
  return png_files(mask_pixels(classes, most));
}

}  // namespace composer::util
