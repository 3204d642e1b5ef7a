#pragma once
#include <cstdint>

#include <ATen/core/Tensor.h>

#include "composer/core/log_records.h"

namespace composer::callbacks {

// Images on the host as one, uint8 [H, W, C] with 1, 3 or 4 channels: about as many columns as rows, with a black line
// of two pixels between images. Each image is followed to its right by its masks, in the order of LogImages.
at::Tensor image_grid(const LogImages& images);

}  // namespace composer::callbacks
