#include "composer/data/image/write_image.h"

#include <string_view>

#include <ATen/core/Tensor.h>

#include "composer/core/error.h"
#include "composer/core/log_records.h"
#include "composer/data/image/decode.h"
#include "composer/util/new_file.h"
#include "composer/util/png.h"

namespace composer::data {
namespace {

// The pixels as uint8 [1, H, W, C].
at::Tensor pixels_to_write(const at::Tensor& image, const std::filesystem::path& file, std::int64_t most_channels) {
  const bool fits = image.defined() && (image.dim() == 2 || image.dim() == 3) && image.numel() > 0 &&
                    (image.scalar_type() == at::kByte || image.is_floating_point());
  const std::int64_t channels = !fits ? 0 : image.dim() == 2 ? 1 : image.size(0);
  if (!fits || channels == 2 || channels > most_channels)
    throw DataError(file.string(), ": an image to write is uint8, or floats from 0 to 1, [C, H, W] with ",
                    most_channels == 4 ? "1, 3 or 4" : "1 or 3", " channels or [H, W], got ",
                    image.defined() ? join(image.sizes(), " of ", image.scalar_type()) : "no tensor");
  return util::image_pixels({.images = image.detach().cpu()}, 1).contiguous();
}

}  // namespace

void write_png(const at::Tensor& image, const std::filesystem::path& file) {
  util::write_whole_file(file, util::png_files(pixels_to_write(image, file, 4)).files.front());
}

void write_jpeg(const at::Tensor& image, const std::filesystem::path& file, std::int64_t quality) {
  if (quality < 1 || quality > 100) throw ConfigError("write_jpeg: quality must be from 1 to 100, got ", quality);
  const at::Tensor pixels = pixels_to_write(image, file, 3);
  util::write_whole_file(file, detail::encode_jpeg(pixels.const_data_ptr<std::uint8_t>(), pixels.size(1),
                                                   pixels.size(2), pixels.size(3), static_cast<int>(quality)));
}

}  // namespace composer::data
