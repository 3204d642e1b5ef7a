#pragma once
#include <cstdint>
#include <memory>

#include "composer/core/export.h"
#include "composer/models/classifier.h"

namespace composer::models {

struct MnistCnnOptions {
  std::int64_t num_classes = 10;  // outputs
  double dropout1 = 0.25;         // probability after pooling, in [0, 1)
  double dropout2 = 0.5;          // probability before the last layer, in [0, 1)
};

// The network of the MNIST examples for images [N, 1, 28, 28]: conv1 (3x3, 32), conv2 (3x3, 64), max-pool 2, fc1 (128),
// fc2.
COMPOSER_EXPORT std::shared_ptr<Classifier> mnist_cnn(MnistCnnOptions options = {});

}  // namespace composer::models
