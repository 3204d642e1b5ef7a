#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/data/image/read_image.h"
#include "tests/data/image/recorded.h"
#include "tests/support/doctest.h"

namespace composer::malformed_images_test {

using test::recorded_file;

namespace {

std::string error_of(const std::string& file) {
  try {
    data::decode_image({reinterpret_cast<const std::uint8_t*>(file.data()), file.size()}, {}, "x/image.any");
  } catch (const DataError& error) {
    return error.what();
  }
  return "none";
}

// The recorded file with these bytes at `at`.
std::string with(const char* name, std::size_t at, std::string_view bytes) {
  return recorded_file(name).replace(at, bytes.size(), bytes);
}

std::string cut(const char* name, std::size_t size) { return recorded_file(name).substr(0, size); }
std::string all_but(const char* name, std::size_t size) {
  const std::string file = recorded_file(name);
  return file.substr(0, file.size() - size);
}

// The place of a text in a recorded file.
std::size_t place(const char* name, std::string_view text) {
  const std::size_t at = recorded_file(name).find(text);
  REQUIRE(at != std::string::npos);
  return at;
}

// The place of the first image in "gif_palette", after the table of colors and the extensions.
std::size_t place_of_gif_image() {
  const std::string file = recorded_file("gif_palette");
  std::size_t at = 13 + 3 * (std::size_t{2} << (file[10] & 7));
  while (file.at(at) == 0x21) {
    at += 2;
    while (file.at(at) != 0) at += static_cast<std::uint8_t>(file[at]) + std::size_t{1};
    ++at;
  }
  REQUIRE(file[at] == ',');
  return at;
}

using namespace std::string_literals;
using namespace std::string_view_literals;

}  // namespace

TEST_CASE("Images that are damaged, cut off or meant to harm are each a DataError of one line that tells why") {
  constexpr const char* kNoImage = "is not an image of a known format";
  constexpr const char* kPng = "the PNG image is damaged or cut off: ";
  constexpr const char* kJpeg = "the JPEG image is damaged or cut off: ";
  constexpr const char* kGif = "the GIF image is damaged";
  constexpr const char* kBmp = "the BMP image is damaged or cut off: ";
  constexpr const char* kPnm = "the PGM or PPM image is damaged or cut off: ";
  const std::size_t scan = place("jpeg_rgb", "\xff\xda"sv), frame = place("jpeg_rgb", "\xff\xc0"sv);
  const std::size_t tables = place("jpeg_rgb", "\xff\xc4"sv), quantizers = place("jpeg_rgb", "\xff\xdb"sv);
  const std::size_t data = place("png_rgb", "IDAT");
  const std::size_t gif = place_of_gif_image();
  const struct {
    const char* what;
    std::string file;
    const char* why;
  } rows[] = {
      // Of no format
      {"nothing", "", "the file is empty"},
      {"a byte", "x", kNoImage},
      {"a text", "these are no pixels at all", kNoImage},
      {"zeros", std::string(1000, '\0'), kNoImage},
      {"a WebP image", "RIFF\x10\0\0\0WEBPVP8 "s + std::string(20, 'x'), "WebP"},
      {"a PNG with line ends of text", with("png_rgb", 4, "\n"sv), kNoImage},
      {"a web page", "<html><body>404 Not Found</body></html>", kNoImage},
      // PNG
      {"a PNG signature alone", cut("png_rgb", 8), kPng},
      {"a PNG cut off in its header", cut("png_rgb", 20), kPng},
      {"a PNG cut off after its header", cut("png_rgb", 33), kPng},
      {"a PNG cut off in its pixels", cut("png_rgb", data + 30), kPng},
      {"a PNG cut off in its last pixels", all_but("png_rgb", 26), kPng},
      {"a PNG of width 0", with("png_rgb", 16, "\0\0\0\0"sv), kPng},
      {"a PNG of height 0", with("png_rgb", 20, "\0\0\0\0"sv), kPng},
      {"a PNG of 2^31 columns", with("png_rgb", 16, "\x80\0\0\0"sv), kPng},
      {"a PNG of a wrong checksum of its header", with("png_rgb", 29, "\0\0\0\0"sv), kPng},
      {"a PNG of a wrong checksum of its pixels", with("png_rgb", data + 10, "\x55\x55\x55"sv), kPng},
      {"a PNG of bit depth 3", with("png_rgb", 24, "\3"sv), kPng},
      {"a PNG of color type 7", with("png_rgb", 25, "\7"sv), kPng},
      {"a PNG of an unknown compression", with("png_rgb", 26, "\1"sv), kPng},
      {"a PNG of an unknown filter", with("png_rgb", 27, "\1"sv), kPng},
      {"a PNG of an unknown interlacing", with("png_rgb", 28, "\2"sv), kPng},
      {"a PNG with a palette that is none", with("png_palette", place("png_palette", "PLTE"), "plte"sv), kPng},
      {"a PNG with a chunk of 4 GB", with("png_rgb", data - 4, "\xff\xff\xff\xff"sv), kPng},
      {"a PNG with a chunk of 2 GB", with("png_rgb", data - 4, "\x7f\xff\xff\xff"sv), kPng},
      {"a PNG whose pixels are of no chunk", with("png_rgb", data, "XDAT"sv), kPng},
      // JPEG
      {"the beginning of a JPEG", cut("jpeg_rgb", 3), kJpeg},
      {"a JPEG cut off in its tables", cut("jpeg_rgb", quantizers + 20), kJpeg},
      {"a JPEG cut off in its frame", cut("jpeg_rgb", frame + 5), kJpeg},
      {"a JPEG cut off before its pixels", cut("jpeg_rgb", scan), kJpeg},
      {"a JPEG cut off after the header of its scan", cut("jpeg_rgb", scan + 14), kJpeg},
      {"a JPEG cut off in its pixels", cut("jpeg_rgb", scan + 100), kJpeg},
      {"a JPEG without its last pixels", all_but("jpeg_rgb", 8), kJpeg},
      {"a progressive JPEG without its last scans", all_but("jpeg_progressive", 60), kJpeg},
      {"a JPEG of height 0", with("jpeg_rgb", frame + 5, "\0\0"sv), kJpeg},
      {"a JPEG of width 0", with("jpeg_rgb", frame + 7, "\0\0"sv), kJpeg},
      {"a JPEG of 65535 x 65535", with("jpeg_rgb", frame + 5, "\xff\xff\xff\xff"sv), kJpeg},
      {"a JPEG of 65500 x 65500", with("jpeg_rgb", frame + 5, "\xff\xdc\xff\xdc"sv), "more than max_pixels"},
      {"a JPEG of 12000 x 12000 in a few bytes", with("jpeg_rgb", frame + 5, "\x2e\xe0\x2e\xe0"sv), "do not fit into"},
      {"a JPEG of 12 bits", with("jpeg_rgb", frame + 4, "\x0c"sv), kJpeg},
      {"a JPEG of no components", with("jpeg_rgb", frame + 9, "\0"sv), kJpeg},
      {"a JPEG of 200 components", with("jpeg_rgb", frame + 9, "\xc8"sv), kJpeg},
      {"a JPEG of sampling 0", with("jpeg_rgb", frame + 11, "\0"sv), kJpeg},
      {"a JPEG of sampling 15", with("jpeg_rgb", frame + 11, "\xff"sv), kJpeg},
      {"a JPEG that names a table which it lacks", with("jpeg_rgb", frame + 12, "\3"sv), kJpeg},
      {"a JPEG with codes longer than there are", with("jpeg_rgb", tables + 5, "\xff\xff\xff\xff"sv), kJpeg},
      {"a JPEG with a table number 9", with("jpeg_rgb", tables + 4, "\x09"sv), kJpeg},
      {"a JPEG with a marker in its pixels", with("jpeg_rgb", scan + 40, "\xff\xd9"sv), kJpeg},
      {"a lossless JPEG", with("jpeg_rgb", frame + 1, "\xc3"sv), kJpeg},
      {"a JPEG with two starts", "\xff\xd8"s + recorded_file("jpeg_rgb"), kJpeg},
      // GIF
      {"the beginning of a GIF", cut("gif_palette", 6), kGif},
      {"a GIF cut off in its colors", cut("gif_palette", 30), kGif},
      {"a GIF cut off before its image", cut("gif_palette", gif), kGif},
      {"a GIF cut off in the header of its image", cut("gif_palette", gif + 5), kGif},
      {"a GIF cut off in its pixels", cut("gif_palette", gif + 30), kGif},
      {"a GIF without an image", cut("gif_palette", gif) + ";", "contains no image"},
      {"a GIF of an unknown block", with("gif_palette", gif, "\x99"sv), kGif},
      {"a GIF of 65535 x 65535", with("gif_palette", 6, "\xff\xff\xff\xff"sv), "more than max_pixels"},
      {"a GIF of 10000 x 10000 in a few bytes", with("gif_palette", 6, "\x10\x27\x10\x27"sv), "do not fit into"},
      {"a GIF whose image has no columns", with("gif_palette", gif + 5, "\0\0"sv), kGif},
      {"a GIF of codes of 13 bits", with("gif_palette", gif + 10, "\x0d"sv), kGif},
      // BMP
      {"the beginning of a BMP", cut("bmp_rgb", 2), kBmp},
      {"a BMP cut off in its header", cut("bmp_rgb", 30), kBmp},
      {"a BMP cut off in its pixels", all_but("bmp_rgb", 1), kBmp},
      {"a BMP cut off in its palette", cut("bmp_palette", 60), kBmp},
      {"a BMP with a header of 3 bytes", with("bmp_rgb", 14, "\3"sv), kBmp},
      {"a BMP of 2^31 - 1 columns", with("bmp_rgb", 18, "\xff\xff\xff\x7f"sv), "more than max_pixels"},
      {"a BMP of -1 columns", with("bmp_rgb", 18, "\xff\xff\xff\xff"sv), "is damaged"},
      {"a BMP of -2^31 rows", with("bmp_rgb", 22, "\0\0\0\x80"sv), "more than max_pixels"},
      {"a BMP of 7 bits", with("bmp_rgb", 28, "\7"sv), kBmp},
      {"a BMP with run lengths", with("bmp_rgb", 30, "\1"sv), "compressed BMP image (kind 1)"},
      {"a BMP whose pixels are beyond its end", with("bmp_rgb", 10, "\xff\xff\xff\xff"sv), kBmp},
      {"a BMP of a palette and masks", with("bmp_palette", 30, "\3"sv), kBmp},
      // PGM and PPM
      {"the beginning of a PPM", "P6", kPnm},
      {"a PPM without its depth", "P6 3 4 ", kPnm},
      {"a PPM of letters", "P6 x y z ", kPnm},
      {"a PPM of a huge number", "P6 99999999999999999999 4 255\n", kPnm},
      {"a PPM of values up to 70000", "P6 1 1 70000\nxxxxxx", kPnm},
      {"a PPM of values up to 0", "P6 1 1 0\nxxxxxx", kPnm},
      {"a PPM of no columns", "P6 0 4 255\n", "tells a size of 4 x 0"},
      {"a PPM of 100000 x 100000", "P6 100000 100000 255\n", "more than max_pixels"},
      {"a PPM without its last byte", all_but("ppm", 1), kPnm},
      {"a PGM that is a comment", "P5 # 3 4 255", kPnm},
  };
  CHECK(std::size(rows) >= 60);
  for (const auto& [what, file, why] : rows) {
    const std::string error = error_of(file);
    INFO(std::string(what), ": ", error);
    CHECK(error.starts_with("x/image.any: "));
    CHECK(error.find(why) != std::string::npos);
    CHECK(error.find('\n') == std::string::npos);
  }
}

TEST_CASE("A PNG whose EXIF data is damaged, or tells a length that it has not, is upright and allocates none") {
  const std::string whole = recorded_file("png_exif");
  const std::size_t chunk = place("png_exif", "eXIf");
  const auto decode = [](const std::string& file) {
    return data::decode_image({reinterpret_cast<const std::uint8_t*>(file.data()), file.size()}, {.rotate = true});
  };
  std::string file = whole;
  file[chunk + 4] = 'X';  // the byte order; the checksum of what is not needed is not looked at
  CHECK((decode(file).sizes() == at::IntArrayRef({3, 11, 19})));
  CHECK((decode(whole).sizes() == at::IntArrayRef({3, 19, 11})));
  file = with("png_exif", chunk - 4, "\x26\0\0\x1c"sv);
  CHECK(error_of(file).find("the PNG image is damaged or cut off") != std::string::npos);
}

TEST_CASE("An image that is cut off anywhere is an error, or whole but for what follows its pixels") {
  for (const char* name : {"png_rgb", "png_palette", "jpeg_rgb", "jpeg_progressive", "jpeg_grey", "gif_palette",
                           "gif_interlaced", "bmp_rgb", "bmp_one_bit", "ppm"}) {
    const std::string whole = recorded_file(name);
    const auto decode = [](const std::string& file) {
      return data::decode_image({reinterpret_cast<const std::uint8_t*>(file.data()), file.size()});
    };
    const at::Tensor expected = decode(whole);
    std::size_t least = whole.size();
    for (std::size_t size = whole.size(); size-- > 0;) try {
        const at::Tensor image = decode(whole.substr(0, size));
        INFO(name, " of ", size, " of ", whole.size(), " bytes");
        CHECK(image.equal(expected));
        least = size;
      } catch (const DataError&) {
      }
    INFO(name, ": ", least, " of ", whole.size());
    const bool plain = std::string_view(name).starts_with("bmp") || std::string_view(name) == "ppm";
    CHECK(whole.size() - least <= (plain ? 0 : 20));
  }
}

}  // namespace composer::malformed_images_test
