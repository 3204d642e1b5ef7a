// BMP of Windows, and PGM and PPM of Netpbm: formats without compression.
#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#include "composer/core/error.h"
#include "composer/data/image/decode.h"
#include "composer/util/letters.h"

namespace composer::data::detail {
namespace {

[[noreturn]] void damaged(const EncodedImage& image, const char* format, const char* why) {
  throw DataError(image.name, ": the ", format, " image is damaged or cut off: ", why);
}

// A number of so many bytes, little-endian.
std::uint32_t number_at(const EncodedImage& image, std::uint64_t at, std::uint64_t size) {
  if (at > image.bytes.size() || size > image.bytes.size() - at) damaged(image, "BMP", "it ends within its header");
  std::uint32_t value = 0;
  for (std::uint64_t i = size; i-- > 0;) value = value << 8 | image.bytes[at + i];
  return value;
}

// The bits of a pixel that are one of its channels.
struct BmpMask {
  std::uint32_t bits = 0;

  std::uint8_t of(std::uint32_t pixel) const {
    if (bits == 0) return 0;
    const int shift = std::countr_zero(bits);
    const std::uint64_t most = bits >> shift;
    return static_cast<std::uint8_t>((((pixel & bits) >> shift) * std::uint64_t{255} + most / 2) / most);
  }
};

struct BmpLayout {
  std::uint32_t bits = 24;
  bool top_down = false;
  std::uint64_t pixels = 0, row_bytes = 0;
  std::vector<std::array<std::uint8_t, 4>> palette;
  std::array<BmpMask, 4> masks;  // RGB and alpha
};

ImageHeader read_bmp_header(const EncodedImage& image, BmpLayout& layout) {
  constexpr std::uint64_t kInfo = 14;
  constexpr std::uint32_t kPlain = 0, kBitFields = 3, kAlphaBitFields = 6;
  layout.pixels = number_at(image, 10, 4);
  const std::uint32_t size = number_at(image, kInfo, 4);
  const bool core = size == 12;
  if (!core && size < 40) damaged(image, "BMP", "its header is of an unknown size");
  const auto width = core ? static_cast<std::int32_t>(number_at(image, kInfo + 4, 2))
                          : static_cast<std::int32_t>(number_at(image, kInfo + 4, 4));
  const std::int64_t height = core ? std::int64_t{number_at(image, kInfo + 6, 2)}
                                   : std::int64_t{static_cast<std::int32_t>(number_at(image, kInfo + 8, 4))};
  layout.top_down = height < 0;
  layout.bits = number_at(image, kInfo + (core ? 10 : 14), 2);
  const std::uint32_t compression = core ? kPlain : number_at(image, kInfo + 16, 4);
  const bool masked = compression == kBitFields || compression == kAlphaBitFields;
  if (compression != kPlain && !masked)
    throw DataError(image.name, ": is a compressed BMP image (kind ", compression,
                    "), which is not supported; convert it to PNG");
  if (layout.bits != 1 && layout.bits != 4 && layout.bits != 8 && layout.bits != 16 && layout.bits != 24 &&
      layout.bits != 32)
    damaged(image, "BMP", "its number of bits for a pixel is unknown");
  if (masked && layout.bits != 16 && layout.bits != 32)
    damaged(image, "BMP", "it has masks for its colors and a palette");

  ImageHeader header{.format = "BMP", .height = height < 0 ? -height : height, .width = width, .channels = 3};
  layout.row_bytes = (static_cast<std::uint64_t>(std::max(width, 0)) * layout.bits + 31) / 32 * 4;
  if (layout.bits <= 8) {
    const std::uint64_t entry = core ? 3 : 4, all = std::uint64_t{1} << layout.bits;
    std::uint64_t used = core ? 0 : number_at(image, kInfo + 32, 4);
    if (used == 0 || used > all) used = all;
    layout.palette.resize(all);  // a pixel may be of a color that the palette lacks: black
    for (std::uint64_t i = 0; i < used; ++i) {
      const std::uint32_t color = number_at(image, kInfo + size + i * entry, 3);
      layout.palette[i] = {static_cast<std::uint8_t>(color >> 16), static_cast<std::uint8_t>(color >> 8),
                           static_cast<std::uint8_t>(color), 255};
    }
  } else if (masked) {
    for (std::uint64_t i = 0; i < 3; ++i) layout.masks[i].bits = number_at(image, kInfo + 40 + 4 * i, 4);
    if (size >= 56 || compression == kAlphaBitFields) layout.masks[3].bits = number_at(image, kInfo + 52, 4);
  } else if (layout.bits == 16) {
    layout.masks = {{{0x7C00}, {0x03E0}, {0x001F}, {0}}};
  } else {
    layout.masks = {{{0xFF0000}, {0xFF00}, {0xFF}, {0}}};
  }
  if (layout.masks[3].bits != 0) header.channels = 4;
  return header;
}

void read_bmp_row(const std::uint8_t* from, const BmpLayout& layout, std::int64_t channels, std::int64_t width,
                  std::uint8_t* to) {
  const std::uint32_t bytes = layout.bits / 8;
  for (std::int64_t x = 0; x < width; ++x, to += channels) {
    std::array<std::uint8_t, 4> rgba;
    if (layout.bits <= 8) {
      const std::uint64_t bit = static_cast<std::uint64_t>(x) * layout.bits;
      const unsigned shift = 8 - layout.bits - static_cast<unsigned>(bit % 8);
      rgba = layout.palette[(from[bit / 8] >> shift) & ((1U << layout.bits) - 1)];
    } else {
      std::uint32_t pixel = 0;
      for (std::uint32_t i = bytes; i-- > 0;) pixel = pixel << 8 | from[static_cast<std::uint64_t>(x) * bytes + i];
      for (std::size_t c = 0; c < 4; ++c) rgba[c] = layout.masks[c].of(pixel);
      if (layout.masks[3].bits == 0) rgba[3] = 255;
    }
    convert_channels(rgba.data(), 4, to, channels, 1);
  }
}

// Reads the next number of a PGM or PPM header, after space and comments.
std::int64_t pnm_number(const EncodedImage& image, std::size_t& at) {
  const auto is_space = [](std::uint8_t c) { return c == ' ' || (c >= '\t' && c <= '\r'); };
  const auto bytes = image.bytes;
  while (at < bytes.size() && (is_space(bytes[at]) || bytes[at] == '#')) {
    if (bytes[at] == '#')
      while (at < bytes.size() && bytes[at] != '\n') ++at;
    else
      ++at;
  }
  std::int64_t number = 0;
  const std::size_t begin = at;
  for (; at < bytes.size() && util::is_digit(static_cast<char>(bytes[at])); ++at) {
    number = number * 10 + (bytes[at] - '0');
    if (number > 1'000'000'000) damaged(image, "PGM or PPM", "a number of its header is too large");
  }
  if (at == begin) damaged(image, "PGM or PPM", "its header does not have three numbers");
  return number;
}

}  // namespace

ImageHeader decode_bmp(const EncodedImage& image, const DecodeWishes& wishes, const PixelMemory& memory) {
  BmpLayout layout;
  const ImageHeader header = read_bmp_header(image, layout);
  check_pixels(image, header, wishes.max_pixels, 8);
  const auto size = static_cast<std::uint64_t>(image.bytes.size());
  if (layout.pixels > size || layout.row_bytes * static_cast<std::uint64_t>(header.height) > size - layout.pixels)
    damaged(image, "BMP", "its pixels do not fit into it");
  if (!memory) return header;
  const std::int64_t channels = wishes.channels == 0 ? header.channels : wishes.channels;
  std::uint8_t* to = memory(header.height, header.width, channels);
  for (std::int64_t y = 0; y < header.height; ++y, to += header.width * channels) {
    const auto row = static_cast<std::uint64_t>(layout.top_down ? y : header.height - 1 - y);
    read_bmp_row(image.bytes.data() + layout.pixels + row * layout.row_bytes, layout, channels, header.width, to);
  }
  return header;
}

ImageHeader decode_pnm(const EncodedImage& image, const DecodeWishes& wishes, const PixelMemory& memory) {
  std::size_t at = 2;
  ImageHeader header{.format = "PNM", .channels = image.bytes[1] == '6' ? 3 : 1};
  header.width = pnm_number(image, at);
  header.height = pnm_number(image, at);
  const std::int64_t most = pnm_number(image, at);
  if (most < 1 || most > 65535) damaged(image, "PGM or PPM", "its largest value is not from 1 to 65535");
  check_pixels(image, header, wishes.max_pixels, 1);
  const std::int64_t bytes = most > 255 ? 2 : 1, values = header.height * header.width * header.channels;
  if (static_cast<std::int64_t>(image.bytes.size() - at) <= values * bytes)
    damaged(image, "PGM or PPM", "its pixels do not fit into it");
  if (!memory) return header;
  const std::uint8_t* from = image.bytes.data() + at + 1;  // after one character of space
  std::vector<std::uint8_t> scaled;
  if (most != 255) {
    scaled.resize(static_cast<std::size_t>(values));
    for (std::int64_t i = 0; i < values; ++i) {
      const std::int64_t value = bytes == 2 ? from[2 * i] << 8 | from[2 * i + 1] : from[i];
      scaled[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>((std::min(value, most) * 255 + most / 2) / most);
    }
    from = scaled.data();
  }
  const std::int64_t channels = wishes.channels == 0 ? header.channels : wishes.channels;
  convert_channels(from, header.channels, memory(header.height, header.width, channels), channels,
                   header.height * header.width);
  return header;
}

}  // namespace composer::data::detail
