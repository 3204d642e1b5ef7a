#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/log_records.h"

namespace composer::loggers {

// Files of images of one size.
struct Pngs {
  std::int64_t width = 0, height = 0;
  std::vector<std::string> files;
};

// The first `most` of checked images that are on the host. Floating-point values below 0, or NaN, become 0; those
// above 1 become 1. Throws Error if an image is too large for a PNG.
Pngs png_files(const LogImages& images, std::int64_t most);

// Classes of pixels as colors; the first 20 classes have different ones.
Pngs mask_png_files(const at::Tensor& classes, std::int64_t most);

}  // namespace composer::loggers
