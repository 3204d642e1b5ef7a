// libpng ends a failed call by longjmp. The functions here that call setjmp hold nothing that has to be destroyed, call
// nothing that throws, and return false after an error.
#include <algorithm>
#include <csetjmp>
#include <cstring>
#include <png.h>
#include <string>
#include <string_view>
#include <vector>

#include "composer/core/error.h"
#include "composer/data/image/decode.h"

namespace composer::data::detail {
namespace {

// The content of the first chunk of EXIF data; empty if there is none.
std::span<const std::uint8_t> exif_of(std::span<const std::uint8_t> png) {
  constexpr std::size_t kSignature = 8, kHead = 8, kChecksum = 4;
  for (std::size_t at = kSignature; at + kHead <= png.size();) {
    std::size_t size = 0;
    for (std::size_t i = 0; i < 4; ++i) size = size << 8 | png[at + i];
    const std::size_t left = png.size() - at - kHead;
    if (size > left) break;
    if (std::memcmp(png.data() + at + 4, "eXIf", 4) == 0) return png.subspan(at + kHead, size);
    at += kHead + size + kChecksum;
  }
  return {};
}

class PngReader {
 public:
  explicit PngReader(const EncodedImage& image) : image_(image), left_(image.bytes) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, fails, ignore);
    if (png_) info_ = png_create_info_struct(png_);
    if (!info_) {
      png_destroy_read_struct(&png_, nullptr, nullptr);
      throw DataError(image.name, ": not enough memory to read a PNG image");
    }
  }
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  ImageHeader header() {
    if (!read_header()) fail();
    ImageHeader header{
        .format = "PNG", .height = png_get_image_height(png_, info_), .width = png_get_image_width(png_, info_)};
    const int type = png_get_color_type(png_, info_);
    const bool color = (type & PNG_COLOR_MASK_COLOR) != 0;
    const bool alpha = (type & PNG_COLOR_MASK_ALPHA) != 0 || png_get_valid(png_, info_, PNG_INFO_tRNS) != 0;
    header.channels = (color ? 3 : 1) + (alpha ? 1 : 0);
    header.orientation = exif_orientation(exif_of(image_.bytes));
    return header;
  }

  void read(const ImageHeader& header, std::int64_t channels, const PixelMemory& memory) {
    // What libpng makes: with alpha if the file has it and it is wanted, of colors unless only grey is needed.
    const std::int64_t made = channels == 1 && header.channels >= 3 ? 3 : channels;
    if (!start(header.channels, made)) fail();
    std::uint8_t* to = memory(header.height, header.width, channels);
    std::vector<std::uint8_t> colors;
    if (made != channels) colors.resize(static_cast<std::size_t>(header.height * header.width * made));
    rows_.resize(static_cast<std::size_t>(header.height));
    for (std::size_t y = 0; y < rows_.size(); ++y)
      rows_[y] = (colors.empty() ? to : colors.data()) + static_cast<std::int64_t>(y) * header.width * made;
    if (!read_rows()) fail();
    if (!colors.empty()) convert_channels(colors.data(), made, to, channels, header.height * header.width);
  }

 private:
  static void read_bytes(png_structp png, png_bytep to, std::size_t count) {
    auto& left = static_cast<PngReader*>(png_get_io_ptr(png))->left_;
    if (left.size() < count) png_error(png, "it ends too early");
    std::memcpy(to, left.data(), count);
    left = left.subspan(count);
  }
  [[noreturn]] static void fails(png_structp png, png_const_charp text) {
    auto* reader = static_cast<PngReader*>(png_get_error_ptr(png));
    const std::string_view why = text ? text : "";
    std::ranges::copy(why.substr(0, sizeof reader->text_ - 1), reader->text_);
    std::longjmp(reader->back_, 1);
  }
  static void ignore(png_structp, png_const_charp) {}

  bool read_header() {
    if (setjmp(back_)) return false;
    png_set_read_fn(png_, this, read_bytes);
    // Nothing but the pixels: for some of the rest, libpng allocates whatever length a file tells.
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION  // a fuzzer does not guess checksums
    png_set_crc_action(png_, PNG_CRC_QUIET_USE, PNG_CRC_QUIET_USE);
#endif
    png_read_info(png_, info_);
    return true;
  }
  // Colors are those of the file: gamma and color spaces are not applied.
  bool start(std::int64_t stored, std::int64_t made) {
    if (setjmp(back_)) return false;
    png_set_expand(png_);
    png_set_scale_16(png_);
    if (stored <= 2 && made >= 3) png_set_gray_to_rgb(png_);
    if (stored % 2 == 0 && made % 2 == 1) png_set_strip_alpha(png_);
    if (stored % 2 == 1 && made % 2 == 0) png_set_add_alpha(png_, 255, PNG_FILLER_AFTER);
    png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    const auto wanted = static_cast<std::size_t>(png_get_image_width(png_, info_)) * static_cast<std::size_t>(made);
    if (png_get_rowbytes(png_, info_) != wanted) png_error(png_, "its rows are of another length");
    return true;
  }
  bool read_rows() {
    if (setjmp(back_)) return false;
    png_read_image(png_, rows_.data());
    return true;
  }
  [[noreturn]] void fail() const { throw DataError(image_.name, ": the PNG image is damaged or cut off: ", text_); }

  const EncodedImage& image_;
  std::span<const std::uint8_t> left_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  std::vector<png_bytep> rows_;
  std::jmp_buf back_{};
  char text_[128] = {};
};

}  // namespace

ImageHeader decode_png(const EncodedImage& image, const DecodeWishes& wishes, const PixelMemory& memory) {
  constexpr std::int64_t kPixelsPerByte = 8 * 1032;  // of one bit each, and what deflate can make of a byte
  PngReader reader(image);
  const ImageHeader header = reader.header();
  check_pixels(image, header, wishes.max_pixels, kPixelsPerByte);
  if (memory) reader.read(header, wishes.channels == 0 ? header.channels : wishes.channels, memory);
  return header;
}

}  // namespace composer::data::detail
