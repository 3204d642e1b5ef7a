#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "composer/core/export.h"
#include "composer/core/tensors.h"
#include "composer/data/in_memory.h"

namespace composer::data {

// CIFAR-10: small color images in 10 classes, 50000 for training and 10000 for tests, in the binary version of
// https://www.cs.toronto.edu/~kriz/cifar.html. "input" is uint8 [N, 3, 32, 32], "target" int64 [N].
struct COMPOSER_EXPORT Cifar10 {
  // The folder has data_batch_1.bin to data_batch_5.bin and test_batch.bin, or cifar-10-batches-bin in which they are.
  // Throws DataError with the file, the expected and the actual value.
  explicit Cifar10(const std::filesystem::path& folder);

  static std::vector<std::string> classes();
  static Normalize normalize();  // of the colors of the training images

  Batch train, test;
};

// CIFAR-100: the same in 100 classes ("target"), which belong to 20 groups ("group").
struct COMPOSER_EXPORT Cifar100 {
  // The folder has train.bin and test.bin, or cifar-100-binary in which they are.
  explicit Cifar100(const std::filesystem::path& folder);

  static Normalize normalize();

  Batch train, test;
};

}  // namespace composer::data
