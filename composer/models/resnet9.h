#pragma once
#include <cstdint>
#include <memory>

#include "composer/core/export.h"
#include "composer/models/classifier.h"

namespace composer::models {

struct ResNet9Options {
  std::int64_t num_classes = 10;  // outputs
  std::int64_t in_channels = 3;   // channels of the images
  std::int64_t width = 64;        // channels of the first convolution; the last have four times as many
};

// A shallow residual net for images of about 32x32 pixels, which trains fast: four convolutions with batch norm, three
// max-poolings, two residual blocks, the mean over the image, fc (after D. Page, "How to train your ResNet", 2018, and
// Composer's ResNet9, whose parameter names it has: body.0.weight, body.7.conv1.weight, fc.bias). Images must have at
// least 8x8 pixels.
COMPOSER_EXPORT std::shared_ptr<Classifier> resnet9(ResNet9Options options = {});

}  // namespace composer::models
