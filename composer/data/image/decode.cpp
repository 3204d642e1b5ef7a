#include "composer/data/image/decode.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "composer/core/error.h"

namespace composer::data::detail {
namespace {

using Decoder = ImageHeader (*)(const EncodedImage&, const DecodeWishes&, const PixelMemory&);

struct Signature {
  std::string_view begins;
  Decoder decode;
};
constexpr std::array kSignatures = {Signature{"\x89PNG\r\n\x1a\n", decode_png},
                                    Signature{"\xff\xd8\xff", decode_jpeg},
                                    Signature{"BM", decode_bmp},
                                    Signature{"GIF87a", decode_gif},
                                    Signature{"GIF89a", decode_gif},
                                    Signature{"P5", decode_pnm},
                                    Signature{"P6", decode_pnm}};

std::uint8_t luma(const std::uint8_t* rgb) {
  return static_cast<std::uint8_t>((rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 0x8000) >> 16);
}

}  // namespace

ImageHeader decode_image(const EncodedImage& image, const DecodeWishes& wishes, const PixelMemory& memory) {
  const std::string_view bytes(reinterpret_cast<const char*>(image.bytes.data()), image.bytes.size());
  for (const Signature& signature : kSignatures)
    if (bytes.starts_with(signature.begins)) return signature.decode(image, wishes, memory);
  if (bytes.empty()) throw DataError(image.name, ": the file is empty");
  if (bytes.size() > 12 && bytes.starts_with("RIFF") && bytes.substr(8, 4) == "WEBP")
    throw DataError(image.name, ": is a WebP image, which is not supported; convert it to PNG or JPEG");
  throw DataError(image.name, ": is not an image of a known format (PNG, JPEG, BMP, GIF, PGM, PPM), or is damaged");
}

void check_pixels(const EncodedImage& image, const ImageHeader& header, std::int64_t max_pixels,
                  std::int64_t pixels_per_byte) {
  const std::int64_t height = header.height, width = header.width;
  if (height <= 0 || width <= 0)
    throw DataError(image.name, ": is damaged: its header tells a size of ", height, " x ", width, " pixels");
  if (height > max_pixels / width)
    throw DataError(image.name, ": has ", height, " x ", width, " pixels, more than max_pixels = ", max_pixels);
  const auto bytes = static_cast<std::int64_t>(image.bytes.size());
  if (height * width / pixels_per_byte > bytes)
    throw DataError(image.name, ": is damaged or cut off: ", height, " x ", width, " pixels do not fit into ", bytes,
                    " bytes");
}

void convert_channels(const std::uint8_t* from, std::int64_t from_channels, std::uint8_t* to, std::int64_t to_channels,
                      std::int64_t count) {
  constexpr std::uint8_t kOpaque = 255;
  const bool from_color = from_channels >= 3, from_alpha = from_channels % 2 == 0;
  if (from_channels == to_channels) {
    std::copy_n(from, count * from_channels, to);
    return;
  }
  for (std::int64_t i = 0; i < count; ++i, from += from_channels, to += to_channels) {
    const std::uint8_t alpha = from_alpha ? from[from_channels - 1] : kOpaque;
    if (to_channels <= 2) {
      to[0] = from_color ? luma(from) : from[0];
    } else {
      to[0] = from[0];
      to[1] = from_color ? from[1] : from[0];
      to[2] = from_color ? from[2] : from[0];
    }
    if (to_channels % 2 == 0) to[to_channels - 1] = alpha;
  }
}

}  // namespace composer::data::detail
