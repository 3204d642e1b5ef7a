#pragma once
#include <cstdint>
#include <memory>

#include "composer/core/export.h"
#include "composer/models/classifier.h"

namespace composer::models {

struct ResNetOptions {
  std::int64_t depth = 18;          // 18, 34, 50, 101 or 152
  std::int64_t num_classes = 1000;  // outputs
  std::int64_t in_channels = 3;     // channels of the images
  bool small_images = false;        // start with a 3x3 convolution without pooling, for images of about 32x32 pixels
};

// The residual net for photographs (He et al. 2016): conv1 (7x7, stride 2), max-pool, four stages, the mean over the
// image, fc. The stages have 64 to 512 channels (basic blocks) or, from depth 50, 256 to 2048 (bottlenecks, whose 3x3
// convolution has the stride). Parameters have the names, shapes and initialisation of torchvision's resnet18 to
// resnet152. Accepts any image size and both memory formats.
COMPOSER_EXPORT std::shared_ptr<Classifier> resnet(ResNetOptions options = {});

}  // namespace composer::models
