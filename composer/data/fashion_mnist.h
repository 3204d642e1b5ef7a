#pragma once
#include <filesystem>

#include "composer/core/export.h"
#include "composer/core/tensors.h"

namespace composer::data {

// Fashion-MNIST, or MNIST, which has the same format: grey images of clothes in 10 classes, 60000 for training and
// 10000 for tests. "input" is uint8 [N, 1, 28, 28], "target" int64 [N]. Mean and standard deviation of the pixels
// divided by 255 are 0.286 and 0.353.
struct COMPOSER_EXPORT FashionMnist {
  // Reads the four idx files, compressed or not. The default folder is that of Debian's package dataset-fashion-mnist.
  // Throws DataError with the file, the expected and the actual value.
  explicit FashionMnist(const std::filesystem::path& folder = "/usr/share/datasets/fashion-mnist");

  Batch train, test;
};

}  // namespace composer::data
