#include "composer/data/image/read_image.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <limits>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/flip.h>
#include <c10/util/Exception.h>

#include "composer/core/error.h"
#include "composer/core/option.h"
#include "composer/data/image/decode.h"

namespace composer::data {
namespace {

std::vector<Option<ReadImageOptions>> read_image_options() {
  using O = ReadImageOptions;
  return all_options(
      option("channels", &O::channels)
          .must("be 1, 3 or 4, or 0 for those of the file",
                [](std::int64_t channels) { return channels == 0 || channels == 1 || channels == 3 || channels == 4; }),
      option("rotate", &O::rotate),
      part("at_least", &O::at_least, "a size")
          .must("not be negative", [](const ImageSize& size) { return size.height >= 0 && size.width >= 0; }),
      option("max_pixels", &O::max_pixels).at_least(1));
}

constexpr std::int64_t kAnyNumberOfPixels = std::numeric_limits<std::int64_t>::max();
using Bytes = std::vector<std::uint8_t>;

// The first bytes of the file, at most so many.
Bytes bytes_of_image(const std::filesystem::path& file, std::uintmax_t most = UINTMAX_MAX) {
  std::error_code error;
  const auto status = std::filesystem::status(file, error);
  if (!std::filesystem::exists(status)) throw DataError(file.string(), ": there is no such file");
  if (!std::filesystem::is_regular_file(status)) throw DataError(file.string(), ": is not a regular file");
  std::ifstream from(file, std::ios::binary);
  if (!from) throw DataError(file.string(), ": cannot be opened: ", std::strerror(errno));
  const auto size = std::min(std::filesystem::file_size(file, error), most);
  if (error) throw DataError(file.string(), ": cannot be read: ", error.message());
  Bytes bytes(size);
  from.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size));
  if (from.bad()) throw DataError(file.string(), ": cannot be read: ", std::strerror(errno));
  bytes.resize(static_cast<std::size_t>(from.gcount()));
  return bytes;
}

bool lies_on_its_side(int orientation) { return orientation >= 5; }

// Turns pixels [H, W, C] upright.
at::Tensor upright(const at::Tensor& pixels, int orientation) {
  const at::Tensor turned = lies_on_its_side(orientation) ? pixels.transpose(0, 1) : pixels;
  switch (orientation) {
    case 2:
    case 6:
      return turned.flip({1});
    case 3:
    case 7:
      return turned.flip({0, 1});
    case 4:
    case 8:
      return turned.flip({0});
    default:
      return turned.contiguous();
  }
}

at::Tensor pixels_of(const detail::EncodedImage& image, const ReadImageOptions& options,
                     const detail::EnoughOf& enough) {
  at::Tensor pixels;
  const auto memory = [&](std::int64_t height, std::int64_t width, std::int64_t channels) {
    try {
      pixels = at::empty({height, width, channels}, at::kByte);
    } catch (const c10::Error&) {
      throw DataError(image.name, ": there is not enough memory for its ", height, " x ", width, " pixels");
    }
    return pixels.mutable_data_ptr<std::uint8_t>();
  };
  detail::DecodeWishes wishes{.channels = options.channels, .max_pixels = options.max_pixels};
  if (enough)
    wishes.enough = [&](const detail::ImageHeader& header) {
      const bool turned = options.rotate && lies_on_its_side(header.orientation);
      const ImageSize whole = turned ? ImageSize(header.width, header.height) : ImageSize(header.height, header.width);
      const ImageSize size = enough(whole);
      return turned ? detail::Extent{size.width, size.height} : detail::Extent{size.height, size.width};
    };
  const detail::ImageHeader header = detail::decode_image(image, wishes, memory);
  if (options.rotate && header.orientation != 1) pixels = upright(pixels, header.orientation);
  return pixels.permute({2, 0, 1});
}

detail::EnoughOf enough_of(const ReadImageOptions& options) {
  if (options.at_least == ImageSize()) return {};
  return [size = options.at_least.square()](ImageSize) { return size; };
}

}  // namespace

at::Tensor decode_image(std::span<const std::uint8_t> bytes, const ReadImageOptions& options, const std::string& name) {
  checked("decode_image", options, read_image_options());
  return pixels_of({bytes, name}, options, enough_of(options));
}

at::Tensor read_image(const std::filesystem::path& file, const ReadImageOptions& options) {
  return detail::read_image(file, options, enough_of(options));
}

at::Tensor detail::read_image(const std::filesystem::path& file, const ReadImageOptions& options,
                              const EnoughOf& enough) {
  checked("read_image", options, read_image_options());
  const Bytes bytes = bytes_of_image(file);
  return pixels_of({bytes, file.string()}, options, enough);
}

ImageInfo image_info(const std::filesystem::path& file) {
  constexpr std::uintmax_t kUsuallyEnough = 1 << 16;
  const auto header_in = [&](std::uintmax_t most) {
    return detail::decode_image({bytes_of_image(file, most), file.string()},
                                {.channels = 0, .max_pixels = kAnyNumberOfPixels}, {});
  };
  detail::ImageHeader header;
  try {
    header = header_in(kUsuallyEnough);
  } catch (const DataError&) {
    header = header_in(UINTMAX_MAX);
  }
  const bool turned = lies_on_its_side(header.orientation);
  return {.format = header.format,
          .size = turned ? ImageSize(header.width, header.height) : ImageSize(header.height, header.width),
          .channels = header.channels};
}

}  // namespace composer::data
