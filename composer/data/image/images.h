#pragma once
#include <cstdint>

#include <ATen/core/Tensor.h>

#include "composer/data/image/transforms.h"

namespace composer::data::detail {

// Throws DataError unless these are images [C, H, W] or [N, C, H, W], uint8 or floats.
void check_images(const char* who, const at::Tensor& images);

// Throw ConfigError.
void check_size(const char* who, const ImageSize& size);
void check_probability(const char* who, double p);
void check_range(const char* who, const char* name, const Range& range, double low, double high);

inline ImageSize size_of(const at::Tensor& images) { return {images.size(-2), images.size(-1)}; }

// The part that begins at this row and column; a view.
at::Tensor part_of(const at::Tensor& images, std::int64_t top, std::int64_t left, ImageSize size);

at::Tensor resized(const at::Tensor& images, ImageSize size, Interpolation interpolation, bool antialias);

// Nearest integer; of two that are equally near, the even one, as Python rounds.
std::int64_t rounded(double value);

// From 0 to bound - 1
std::int64_t below(RandomStream& random, std::int64_t bound);

}  // namespace composer::data::detail
