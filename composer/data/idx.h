#pragma once
#include <filesystem>

#include <ATen/core/Tensor.h>

#include "composer/core/export.h"

namespace composer::data {

// The uint8 array in an idx file, as MNIST and its kin come; compressed if the name ends in .gz. Throws DataError that
// names the file for anything that is not exactly such an array, without allocating more than the file can hold.
COMPOSER_EXPORT at::Tensor read_idx(const std::filesystem::path& file);

}  // namespace composer::data
