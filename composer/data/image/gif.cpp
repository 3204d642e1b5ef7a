#include "composer/core/error.h"
#include "composer/data/image/decode.h"

#if COMPOSER_HAS_GIF
#include <algorithm>
#include <array>
#include <cstring>
#include <gif_lib.h>
#include <vector>

namespace composer::data::detail {
namespace {

int read_gif_bytes(GifFileType* file, GifByteType* to, int count) {
  auto& left = *static_cast<std::span<const std::uint8_t>*>(file->UserData);
  const std::size_t read = std::min(left.size(), static_cast<std::size_t>(std::max(count, 0)));
  std::copy_n(left.data(), read, to);
  left = left.subspan(read);
  return static_cast<int>(read);
}

class GifReader {
 public:
  explicit GifReader(const EncodedImage& image) : image_(image), left_(image.bytes) {
    int error = 0;
    file_ = DGifOpen(&left_, read_gif_bytes, &error);
    if (!file_) fail(error);
  }
  ~GifReader() { DGifCloseFile(file_, nullptr); }
  GifReader(const GifReader&) = delete;
  GifReader& operator=(const GifReader&) = delete;

  // Goes to the first image of the file.
  ImageHeader header() {
    for (GifRecordType type = UNDEFINED_RECORD_TYPE; type != IMAGE_DESC_RECORD_TYPE;) {
      need(DGifGetRecordType(file_, &type));
      if (type == TERMINATE_RECORD_TYPE) throw DataError(image_.name, ": the GIF file contains no image");
      if (type == EXTENSION_RECORD_TYPE) read_extension();
    }
    need(DGifGetImageDesc(file_));
    const GifImageDesc& frame = file_->Image;
    if (frame.Left < 0 || frame.Top < 0 || frame.Width <= 0 || frame.Height <= 0)
      throw DataError(image_.name, ": the GIF image is damaged: its first frame has no pixels");
    return {.format = "GIF",
            .height = std::max<std::int64_t>(file_->SHeight, std::int64_t{frame.Top} + frame.Height),
            .width = std::max<std::int64_t>(file_->SWidth, std::int64_t{frame.Left} + frame.Width),
            .channels = transparent_ >= 0 ? 4 : 3};
  }

  void read(const ImageHeader& header, std::int64_t channels, std::uint8_t* to) {
    const ColorMapObject* colors = file_->Image.ColorMap ? file_->Image.ColorMap : file_->SColorMap;
    if (!colors) throw DataError(image_.name, ": the GIF image is damaged: it has no table of colors");
    const std::int64_t stride = header.width * channels;
    Palette palette = palette_of(colors, channels);
    for (std::int64_t i = 0; i < header.height * header.width; ++i)  // what the frame does not cover
      std::copy_n(palette[background(colors)].data(), channels, to + i * channels);

    const GifImageDesc& frame = file_->Image;
    std::vector<GifPixelType> line(static_cast<std::size_t>(frame.Width));
    const auto read_row = [&](std::int64_t row) {
      need(DGifGetLine(file_, line.data(), frame.Width));
      std::uint8_t* pixel = to + (frame.Top + row) * stride + std::int64_t{frame.Left} * channels;
      for (const GifPixelType index : line) pixel = std::copy_n(palette[index].data(), channels, pixel);
    };
    if (!frame.Interlace) {
      for (std::int64_t row = 0; row < frame.Height; ++row) read_row(row);
      return;
    }
    constexpr std::array<std::pair<int, int>, 4> kPasses = {{{0, 8}, {4, 8}, {2, 4}, {1, 2}}};
    for (const auto& [first, step] : kPasses)
      for (std::int64_t row = first; row < frame.Height; row += step) read_row(row);
  }

 private:
  using Palette = std::array<std::array<std::uint8_t, 4>, 256>;

  // A color for each of the 256 values, also for those that the table lacks.
  Palette palette_of(const ColorMapObject* colors, std::int64_t channels) const {
    Palette palette{};
    for (int i = 0; i < 256; ++i) {
      std::array<std::uint8_t, 4> rgba = {0, 0, 0, static_cast<std::uint8_t>(i == transparent_ ? 0 : 255)};
      if (i < colors->ColorCount) {
        const GifColorType& color = colors->Colors[i];
        rgba = {color.Red, color.Green, color.Blue, rgba[3]};
      }
      convert_channels(rgba.data(), 4, palette[static_cast<std::size_t>(i)].data(), channels, 1);
    }
    return palette;
  }
  std::size_t background(const ColorMapObject* colors) const {
    if (transparent_ >= 0) return static_cast<std::size_t>(transparent_);
    return file_->SBackGroundColor < colors->ColorCount ? static_cast<std::size_t>(file_->SBackGroundColor) : 0;
  }
  void read_extension() {
    int code = 0;
    GifByteType* block = nullptr;
    need(DGifGetExtension(file_, &code, &block));
    while (block) {
      GraphicsControlBlock control{};
      if (code == GRAPHICS_EXT_FUNC_CODE && DGifExtensionToGCB(block[0], block + 1, &control) == GIF_OK)
        transparent_ = control.TransparentColor;
      need(DGifGetExtensionNext(file_, &block));
    }
  }
  void need(int result) const {
    if (result != GIF_OK) fail(file_->Error);
  }
  [[noreturn]] void fail(int error) const {
    const char* text = GifErrorString(error);
    throw DataError(image_.name, ": the GIF image is damaged or cut off", text ? ": " : "", text ? text : "");
  }

  const EncodedImage& image_;
  std::span<const std::uint8_t> left_;
  GifFileType* file_ = nullptr;
  int transparent_ = NO_TRANSPARENT_COLOR;
};

}  // namespace

ImageHeader decode_gif(const EncodedImage& image, const DecodeWishes& wishes, const PixelMemory& memory) {
  constexpr std::int64_t kPixelsPerByte = 4096;  // a code of 9 to 12 bits stands for 4096 at most
  GifReader reader(image);
  ImageHeader header = reader.header();
  check_pixels(image, header, wishes.max_pixels, kPixelsPerByte);
  if (!memory) return header;
  const std::int64_t channels = wishes.channels == 0 ? header.channels : wishes.channels;
  reader.read(header, channels, memory(header.height, header.width, channels));
  return header;
}

}  // namespace composer::data::detail

#else

namespace composer::data::detail {

ImageHeader decode_gif(const EncodedImage& image, const DecodeWishes&, const PixelMemory&) {
  throw ConfigError(image.name,
                    ": is a GIF image, and libcomposer was built without the library for these: install "
                    "Debian's package libgif-dev and build libcomposer again");
}

}  // namespace composer::data::detail

#endif
