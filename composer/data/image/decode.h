#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace composer::data::detail {

// The bytes of a file of an image, and its name for errors.
struct EncodedImage {
  std::span<const std::uint8_t> bytes;
  std::string name;
};

// What the header of a file says. Height and width are those of the stored pixels, before they are turned upright.
struct ImageHeader {
  const char* format = "";
  std::int64_t height = 0, width = 0;
  std::int64_t channels = 3;  // 1: grey, 2: grey and alpha, 3: RGB, 4: RGB and alpha
  int orientation = 1;        // as in EXIF, 1 to 8; 1: upright
};

struct Extent {
  std::int64_t height = 0, width = 0;
};

struct DecodeWishes {
  std::int64_t channels = 3;  // 1, 3 or 4; 0: those of the file
  std::int64_t max_pixels = 0;
  // Returns the least height and width that are enough, of the stored pixels. A JPEG can be decoded smaller. Empty:
  // all.
  std::function<Extent(const ImageHeader&)> enough = {};
};

// Returns memory for height * width * channels bytes, in this order.
using PixelMemory = std::function<std::uint8_t*(std::int64_t height, std::int64_t width, std::int64_t channels)>;

// Finds the format by the content, and decodes into memory of the caller. Without `memory` only the header is read.
// Throws DataError for content that is damaged, cut off, of more pixels than allowed or than the file can hold, or of
// an unknown format; ConfigError if the library that its format needs was left out.
ImageHeader decode_image(const EncodedImage& image, const DecodeWishes& wishes, const PixelMemory& memory);

// Those of one format.
ImageHeader decode_bmp(const EncodedImage& image, const DecodeWishes& wishes, const PixelMemory& memory);
ImageHeader decode_gif(const EncodedImage& image, const DecodeWishes& wishes, const PixelMemory& memory);
ImageHeader decode_jpeg(const EncodedImage& image, const DecodeWishes& wishes, const PixelMemory& memory);
ImageHeader decode_png(const EncodedImage& image, const DecodeWishes& wishes, const PixelMemory& memory);
ImageHeader decode_pnm(const EncodedImage& image, const DecodeWishes& wishes, const PixelMemory& memory);

// Throws DataError for an image without pixels, with more than allowed, or with more than so many bytes can hold.
void check_pixels(const EncodedImage& image, const ImageHeader& header, std::int64_t max_pixels,
                  std::int64_t pixels_per_byte);

// Converts `count` pixels. Grey is the luma of ITU-R 601, alpha is dropped, or opaque.
void convert_channels(const std::uint8_t* from, std::int64_t from_channels, std::uint8_t* to, std::int64_t to_channels,
                      std::int64_t count);

// The orientation that EXIF data tells, which begins with a TIFF header; 1 if it tells none, or is damaged.
int exif_orientation(std::span<const std::uint8_t> tiff);

// The file of an image [height, width, channels] of 1 or 3 channels.
std::string encode_jpeg(const std::uint8_t* pixels, std::int64_t height, std::int64_t width, std::int64_t channels,
                        int quality);

}  // namespace composer::data::detail
