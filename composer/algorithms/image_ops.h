#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/export.h"
#include "composer/util/random.h"

namespace composer::algorithms {

// An operation on an image, with a parameter (`value`) that depends on the operation. The results equal those of
// Pillow's functions with the same names.
enum class ImageOp : std::uint8_t {
  NONE,
  AUTOCONTRAST,
  EQUALIZE,
  POSTERIZE,    // number of bits that are kept, 1 to 8
  ROTATE,       // degrees, counterclockwise, about the centre
  SOLARIZE,     // pixels from this value on are inverted, 0 to 256
  SHEAR_X,      // pixels to the left per row
  SHEAR_Y,      // pixels up per column
  TRANSLATE_X,  // pixels to the left
  TRANSLATE_Y,  // pixels up
  COLOR,        // 0: gray, 1: no change, above 1: more color
  CONTRAST,     // 0: the mean gray, 1: no change
  BRIGHTNESS,   // 0: black, 1: no change
  SHARPNESS,    // 0: blurred, 1: no change
};
COMPOSER_EXPORT const char* to_string(ImageOp op);

struct ImageChange {
  ImageOp op = ImageOp::NONE;
  double value = 0;
};

// Changes images uint8 [N, C, H, W] with one or three channels, each by its own operation: `changes` has N entries.
// Images with the same operation are changed together, and so are all images whose operations move pixels. Pixels from
// outside of an image are 0.
COMPOSER_EXPORT at::Tensor change_images(const at::Tensor& images, const std::vector<ImageChange>& changes);

// Several operations for each image, one after another.
using ImageChanges = std::vector<ImageChange>;
COMPOSER_EXPORT at::Tensor change_images(const at::Tensor& images, const std::vector<ImageChanges>& changes);

enum class AugmentationSet : std::uint8_t {
  ALL,       // every operation
  SAFE,      // without COLOR, CONTRAST, BRIGHTNESS and SHARPNESS, which are among the corruptions of ImageNet-C
  ORIGINAL,  // every operation; the last four with the strengths of the original AugMix
};
COMPOSER_EXPORT const std::vector<ImageOp>& image_ops_of(AugmentationSet set);

// Draws the parameter of an operation for images of this size. severity: 0 to 10. `uniform(low, high)` samples a
// number; high may be less than low.
COMPOSER_EXPORT ImageChange draw_image_change(ImageOp op, double severity, AugmentationSet set, std::int64_t height,
                                              std::int64_t width,
                                              const std::function<double(double low, double high)>& uniform);

// Draws one of the operations of the set, each equally often, with its parameter.
COMPOSER_EXPORT ImageChange sample_image_change(AugmentationSet set, double severity, std::int64_t height,
                                                std::int64_t width, RandomStream& random);

// Converts images [N, C, H, W] with one or three channels to uint8. They must be uint8, or floating-point with values
// from 0 to 1. Throws ConfigError that begins with `who` for anything else.
COMPOSER_EXPORT at::Tensor to_bytes(const at::Tensor& images, const std::string& who);
// The inverse of to_bytes(): returns images with the dtype and memory format of `like`.
COMPOSER_EXPORT at::Tensor from_bytes(const at::Tensor& images, const at::Tensor& like);

// Warns about floating-point images on the host with values outside of 0 to 1, such as normalized images. Reads them.
COMPOSER_EXPORT void warn_unless_from_0_to_1(const at::Tensor& images, const std::string& who);

}  // namespace composer::algorithms
