#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>

#include <ATen/core/Tensor.h>

#include "composer/core/export.h"
#include "composer/data/image/image_size.h"

namespace composer::data {

struct ReadImageOptions {
  std::int64_t channels = 3;  // 1: grey, 3: RGB, 4: RGB and alpha (255 if the file has none), 0: as stored
  bool rotate = true;         // turn the image upright, as its EXIF orientation says
  // a JPEG may be decoded at 1/2, 1/4 or 1/8 of its size if height and width stay at least this; 0: never
  ImageSize at_least = {};
  std::int64_t max_pixels = 178'956'970;  // an image with more is an error (the limit of Pillow)
};

// Reads a PNG, JPEG, BMP, GIF (its first frame), PGM or PPM file as uint8 [C, H, W], with the channels innermost in
// memory. The format is found by the content, not by the name. Colors are those of the file: profiles and gamma are not
// applied; 16 bits become 8; alpha that is not asked for is dropped. Throws DataError with the file and the reason if
// it is missing, damaged, cut off or too large, ConfigError for an invalid option, or if the library was built without
// the package that the format needs (docs/reference/building.md).
COMPOSER_EXPORT at::Tensor read_image(const std::filesystem::path& file, const ReadImageOptions& options = {});
// The same of a file that is in memory; errors call it `name`.
COMPOSER_EXPORT at::Tensor decode_image(std::span<const std::uint8_t> bytes, const ReadImageOptions& options = {},
                                        const std::string& name = "image in memory");

// What the header of an image file says.
struct ImageInfo {
  std::string format;         // "PNG", "JPEG", "BMP", "GIF" or "PNM"
  ImageSize size;             // when it is turned upright
  std::int64_t channels = 3;  // as stored
};
COMPOSER_EXPORT ImageInfo image_info(const std::filesystem::path& file);

namespace detail {

// Like read_image() with an `at_least` that depends on the size that the whole image has.
using EnoughOf = std::function<ImageSize(ImageSize whole)>;
COMPOSER_EXPORT at::Tensor read_image(const std::filesystem::path& file, const ReadImageOptions& options,
                                      const EnoughOf& enough);

}  // namespace detail

}  // namespace composer::data
