#pragma once
#include <cstdint>
#include <filesystem>

#include <ATen/core/Tensor.h>

#include "composer/core/export.h"

namespace composer::data {

// Write an image [C, H, W] or [H, W] with 1 or 3 channels (of a PNG also 4), uint8, or floats from 0 to 1. The file
// appears complete or not at all; missing folders are made. Throw DataError for another image, ConfigError for a
// quality that is not from 1 to 100.
COMPOSER_EXPORT void write_png(const at::Tensor& image, const std::filesystem::path& file);
COMPOSER_EXPORT void write_jpeg(const at::Tensor& image, const std::filesystem::path& file, std::int64_t quality = 90);

}  // namespace composer::data
