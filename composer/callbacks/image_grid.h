#pragma once
#include <cstdint>

#include <ATen/core/Tensor.h>

#include "composer/core/log_records.h"

namespace composer::callbacks {

// Combines images on the host into one, uint8 [H, W, C] with 1, 3 or 4 channels: about as many columns as rows, with a
// black line of two pixels between images. The masks of an image follow to its right, in the order of LogImages.
at::Tensor image_grid(const LogImages& images);

}  // namespace composer::callbacks
