#pragma once
#include <filesystem>

#include "composer/core/export.h"
#include "composer/core/tensors.h"

namespace composer::data {

// Fashion-MNIST (or MNIST, which has the same form): grey images of clothes in 10 classes, 60000 to train on and 10000
// to test. "input" is uint8 [N, 1, 28, 28], "target" int64 [N]; mean and standard deviation of the pixels are 0.286 and
// 0.353 of 255.
struct COMPOSER_EXPORT FashionMnist {
  // From the four idx files, compressed or not; by default where Debian's package dataset-fashion-mnist puts them.
  // Throws DataError that names the file, what was expected and what was found.
  explicit FashionMnist(const std::filesystem::path& folder = "/usr/share/datasets/fashion-mnist");

  Batch train, test;
};

}  // namespace composer::data
