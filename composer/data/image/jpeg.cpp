// libjpeg ends a failed call by longjmp, over the frames of C. The functions here that call setjmp hold nothing that
// has to be destroyed, call nothing that throws, and return false after an error.
#include <cstdio>
#include <string>

#include "composer/core/error.h"
#include "composer/data/image/decode.h"

#if COMPOSER_HAS_JPEG
#include <algorithm>
#include <csetjmp>
#include <cstdlib>
#include <jerror.h>
#include <jpeglib.h>
#include <string_view>
#include <vector>

namespace composer::data::detail {
namespace {

// A file has a few scans. A progressive one of thousands is made to take hours.
constexpr int kMostScans = 500;

struct JpegErrors {
  jpeg_error_mgr manager{};
  std::jmp_buf back{};
  char text[JMSG_LENGTH_MAX] = {};
};

[[noreturn]] void jpeg_fails(j_common_ptr info) {
  auto* errors = reinterpret_cast<JpegErrors*>(info->err);
  info->err->format_message(info, errors->text);
  std::longjmp(errors->back, 1);
}

// Warnings that mean that pixels are wrong or missing are errors; others are of no interest.
void jpeg_warns(j_common_ptr info, int level) {
  if (level >= 0) return;
  switch (info->err->msg_code) {
    case JWRN_JPEG_EOF:
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_BOGUS_PROGRESSION:
    case JWRN_MUST_RESYNC:
      jpeg_fails(info);
    default:
      break;
  }
}

void jpeg_progress(j_common_ptr info) {
  auto* errors = reinterpret_cast<JpegErrors*>(info->err);
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= kMostScans) return;
  constexpr std::string_view kText = "it has more than 500 scans";
  std::ranges::copy(kText, errors->text);
  std::longjmp(errors->back, 1);
}

void connect_errors(JpegErrors& errors) {
  jpeg_std_error(&errors.manager);
  errors.manager.error_exit = jpeg_fails;
  errors.manager.emit_message = jpeg_warns;
}

class JpegReader {
 public:
  explicit JpegReader(const EncodedImage& image) : image_(image) {
    connect_errors(errors_);
    info_.err = &errors_.manager;
    progress_.progress_monitor = jpeg_progress;
    if (!create()) fail();
  }
  ~JpegReader() { jpeg_destroy_decompress(&info_); }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  ImageHeader header() {
    if (!read_header()) fail();
    ImageHeader header{.format = "JPEG",
                       .height = info_.image_height,
                       .width = info_.image_width,
                       .channels = info_.jpeg_color_space == JCS_GRAYSCALE ? 1 : 3};
    constexpr std::size_t kName = 6;  // "Exif", 0, 0
    for (auto* marker = info_.marker_list; marker; marker = marker->next)
      if (marker->data_length > kName && std::equal(marker->data, marker->data + kName, "Exif\0"))
        header.orientation = exif_orientation({marker->data + kName, marker->data_length - kName});
    return header;
  }

  // The largest reduction, of 1, 2, 4 and 8, that leaves as much as is enough. libjpeg is fast at these.
  void shrink(const ImageHeader& header, Extent enough) {
    info_.scale_num = 1;
    info_.scale_denom = 1;
    for (const unsigned divisor : {8, 4, 2})
      if ((header.height + divisor - 1) / divisor >= enough.height &&
          (header.width + divisor - 1) / divisor >= enough.width) {
        info_.scale_denom = divisor;
        return;
      }
  }

  void read(std::int64_t channels, const PixelMemory& memory) {
    const bool four = info_.jpeg_color_space == JCS_CMYK || info_.jpeg_color_space == JCS_YCCK;
    const bool grey = channels == 1 && (info_.jpeg_color_space == JCS_GRAYSCALE || info_.jpeg_color_space == JCS_YCbCr);
    info_.out_color_space = four ? JCS_CMYK : grey ? JCS_GRAYSCALE : JCS_RGB;
    if (!start()) fail();
    const std::int64_t height = info_.output_height, width = info_.output_width;
    const int components = info_.output_components;
    std::uint8_t* to = memory(height, width, channels);
    std::vector<std::uint8_t> line;
    if (four || components != channels) line.resize(static_cast<std::size_t>(width * components));
    for (std::int64_t y = 0; y < height; ++y, to += width * channels) {
      if (!read_line(line.empty() ? to : line.data())) fail();
      if (four) cmyk_to_rgb(line.data(), width);
      if (!line.empty()) convert_channels(line.data(), four ? 3 : components, to, channels, width);
    }
  }

 private:
  bool create() {
    if (setjmp(errors_.back)) return false;
    jpeg_create_decompress(&info_);
    info_.progress = &progress_;
    return true;
  }
  bool read_header() {
    if (setjmp(errors_.back)) return false;
    jpeg_mem_src(&info_, image_.bytes.data(), image_.bytes.size());
    jpeg_save_markers(&info_, JPEG_APP0 + 1, 0xFFFF);
    jpeg_read_header(&info_, TRUE);
    return true;
  }
  bool start() {
    if (setjmp(errors_.back)) return false;
    return jpeg_start_decompress(&info_) == TRUE;
  }
  bool read_line(std::uint8_t* to) {
    if (setjmp(errors_.back)) return false;
    JSAMPROW row = to;
    return jpeg_read_scanlines(&info_, &row, 1) == 1;
  }
  // Files of four colors have been written inverted since Adobe began it, in place.
  static void cmyk_to_rgb(std::uint8_t* line, std::int64_t width) {
    for (std::int64_t x = 0; x < width; ++x)
      for (int c = 0; c < 3; ++c)
        line[3 * x + c] = static_cast<std::uint8_t>((line[4 * x + c] * line[4 * x + 3] + 127) / 255);
  }
  [[noreturn]] void fail() const {
    throw DataError(image_.name, ": the JPEG image is damaged or cut off: ", errors_.text);
  }

  const EncodedImage& image_;
  JpegErrors errors_;
  jpeg_progress_mgr progress_{};
  jpeg_decompress_struct info_{};
};

class JpegWriter {
 public:
  JpegWriter() {
    connect_errors(errors_);
    info_.err = &errors_.manager;
    to_.manager.init_destination = begin;
    to_.manager.empty_output_buffer = grow;
    to_.manager.term_destination = end;
  }
  ~JpegWriter() {
    jpeg_destroy_compress(&info_);
    std::free(to_.bytes);
  }
  JpegWriter(const JpegWriter&) = delete;
  JpegWriter& operator=(const JpegWriter&) = delete;

  std::string write(const std::uint8_t* pixels, std::int64_t height, std::int64_t width, std::int64_t channels,
                    int quality) {
    if (!encode(pixels, height, width, channels, quality))
      throw DataError("an image of ", height, " x ", width, " pixels cannot be written as JPEG: ", errors_.text);
    return {reinterpret_cast<const char*>(to_.bytes), to_.size};
  }

 private:
  // jpeg_mem_dest() leaves a pointer to freed memory if a call fails after the buffer has grown.
  struct Memory {
    jpeg_destination_mgr manager{};
    JOCTET* bytes = nullptr;
    std::size_t size = 0, room = 0;
  };
  static Memory& memory_of(j_compress_ptr info) { return *reinterpret_cast<Memory*>(info->dest); }
  static void begin(j_compress_ptr info) { grow(info); }
  static boolean grow(j_compress_ptr info) {
    constexpr std::size_t kFirstRoom = 1 << 16;
    Memory& to = memory_of(info);
    const std::size_t size = to.room, room = std::max(kFirstRoom, 2 * size);
    void* const grown = std::realloc(to.bytes, room);
    if (!grown) {
      info->err->msg_code = JERR_OUT_OF_MEMORY;
      info->err->msg_parm.i[0] = 0;
      info->err->error_exit(reinterpret_cast<j_common_ptr>(info));
    }
    to.bytes = static_cast<JOCTET*>(grown);
    to.room = room;
    to.manager.next_output_byte = to.bytes + size;
    to.manager.free_in_buffer = room - size;
    return TRUE;
  }
  static void end(j_compress_ptr info) {
    Memory& to = memory_of(info);
    to.size = to.room - to.manager.free_in_buffer;
  }

  bool encode(const std::uint8_t* pixels, std::int64_t height, std::int64_t width, std::int64_t channels, int quality) {
    if (setjmp(errors_.back)) return false;
    jpeg_create_compress(&info_);
    info_.dest = &to_.manager;
    info_.image_height = static_cast<JDIMENSION>(height);
    info_.image_width = static_cast<JDIMENSION>(width);
    info_.input_components = static_cast<int>(channels);
    info_.in_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&info_);
    jpeg_set_quality(&info_, quality, TRUE);
    jpeg_start_compress(&info_, TRUE);
    while (info_.next_scanline < info_.image_height) {
      auto* row = const_cast<JSAMPROW>(pixels + static_cast<std::int64_t>(info_.next_scanline) * width * channels);
      jpeg_write_scanlines(&info_, &row, 1);
    }
    jpeg_finish_compress(&info_);
    return true;
  }

  JpegErrors errors_;
  jpeg_compress_struct info_{};
  Memory to_;
};

}  // namespace

ImageHeader decode_jpeg(const EncodedImage& image, const DecodeWishes& wishes, const PixelMemory& memory) {
  // The shortest code of a block of 64 values is one bit, and a value may stand for 4 x 4 pixels.
  constexpr std::int64_t kPixelsPerByte = 8 * 64 * 16;
  JpegReader reader(image);
  ImageHeader header = reader.header();
  check_pixels(image, header, wishes.max_pixels, kPixelsPerByte);
  if (!memory) return header;
  if (wishes.enough) reader.shrink(header, wishes.enough(header));
  reader.read(wishes.channels == 0 ? header.channels : wishes.channels, memory);
  return header;
}

std::string encode_jpeg(const std::uint8_t* pixels, std::int64_t height, std::int64_t width, std::int64_t channels,
                        int quality) {
  return JpegWriter().write(pixels, height, width, channels, quality);
}

}  // namespace composer::data::detail

#else

namespace composer::data::detail {

ImageHeader decode_jpeg(const EncodedImage& image, const DecodeWishes&, const PixelMemory&) {
  throw ConfigError(image.name,
                    ": is a JPEG image, and libcomposer was built without the library for these: install "
                    "Debian's package libjpeg-dev and build libcomposer again");
}

std::string encode_jpeg(const std::uint8_t*, std::int64_t, std::int64_t, std::int64_t, int) {
  throw ConfigError(
      "libcomposer was built without the library that writes JPEG images: install Debian's package "
      "libjpeg-dev and build libcomposer again");
}

}  // namespace composer::data::detail

#endif
