#pragma once
#include <cstdint>
#include <memory>

#include "composer/core/export.h"
#include "composer/models/classifier.h"

namespace composer::models {

struct ResNetCifarOptions {
  std::int64_t depth = 20;        // 6n + 2: 8, 14, 20, 32, 44, 56, 110
  std::int64_t num_classes = 10;  // outputs
  std::int64_t in_channels = 3;   // channels of the images
};

// The residual net for small images (He et al. 2016, section 4.2): conv1, three stages of n blocks with 16, 32 and 64
// channels, the mean over the image, fc. If the width changes, the shortcut is a 1x1 convolution with batch norm.
// Parameters have the names of torchvision's ResNets. Accepts any image size and both memory formats.
COMPOSER_EXPORT std::shared_ptr<Classifier> resnet_cifar(ResNetCifarOptions options = {});

}  // namespace composer::models
