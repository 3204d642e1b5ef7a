#pragma once
#include <filesystem>

#include <ATen/core/Tensor.h>

#include "composer/core/export.h"

namespace composer::data {

// Reads the uint8 array in an idx file, the format of MNIST; gzip-compressed if the name ends in .gz. Throws DataError
// with the file for any other content, without allocating more than the file can hold.
COMPOSER_EXPORT at::Tensor read_idx(const std::filesystem::path& file);

}  // namespace composer::data
