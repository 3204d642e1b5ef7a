#include "composer/data/image/read_image.h"

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/data/image/write_image.h"
#include "tests/data/image/recorded.h"
#include "tests/support/doctest.h"
#include "tests/support/idx_files.h"
#include "tests/support/text.h"

namespace composer::read_image_test {

using namespace test;
using data::read_image;
using data::ReadImageOptions;

namespace {

std::span<const std::uint8_t> bytes_of(const std::string& file) {
  return {reinterpret_cast<const std::uint8_t*>(file.data()), file.size()};
}

at::Tensor decoded(const std::string& file, const ReadImageOptions& options = {}) {
  return data::decode_image(bytes_of(file), options);
}

double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  REQUIRE((a.sizes() == b.sizes()));
  return a.to(at::kFloat).sub(b.to(at::kFloat)).abs().max().item<double>();
}

// A picture that JPEG hardly changes.
at::Tensor smooth(std::int64_t channels, std::int64_t height, std::int64_t width) {
  const at::Tensor y = at::arange(height).view({1, -1, 1}), x = at::arange(width).view({1, 1, -1}),
                   c = at::arange(channels).view({-1, 1, 1});
  return (y * 0.13 + x * 0.021 + c).sin().mul(110).add(127).round().to(at::kByte);
}

}  // namespace

TEST_CASE("Files of Pillow have the pixels that Pillow reads from them") {
  int compared = 0;
  for (const auto& [name, expected] : recorded_images()) {
    if (!name.starts_with("pixels/")) continue;
    const std::size_t slash = name.rfind('/');
    const std::string file = name.substr(7, slash - 7), mode = name.substr(slash + 1);
    INFO(std::string(name));
    const at::Tensor image = decoded(recorded_file(file), {.channels = mode == "L"     ? 1
                                                                       : mode == "RGB" ? 3
                                                                                       : 4})
                                 .permute({1, 2, 0});
    // The grey values of a JPEG are stored, which Pillow computes from its colors.
    const bool rounded = file.starts_with("jpeg");
    CHECK(largest_difference(image, expected) <= (rounded ? 2 : 0));
    ++compared;
  }
  CHECK(compared == 73);
}

TEST_CASE("A file is turned upright as its EXIF orientation says, or left as it is stored") {
  const at::Tensor upright = decoded(recorded_file("jpeg_exif_1"));
  for (int orientation = 1; orientation <= 8; ++orientation) {
    INFO(orientation);
    const std::string file = recorded_file("jpeg_exif_" + std::to_string(orientation));
    CHECK(decoded(file, {.rotate = false}).equal(upright));
    const bool lies = orientation >= 5;
    CHECK(decoded(file).size(1) == upright.size(lies ? 2 : 1));
  }
  const std::string png = recorded_file("png_exif");
  CHECK(decoded(png).equal(decoded(png, {.rotate = false}).transpose(1, 2).flip({2})));
}

TEST_CASE("With 0 channels an image has those of its file") {
  const std::pair<const char*, std::int64_t> rows[] = {{"png_grey", 1},
                                                       {"png_grey_alpha", 2},
                                                       {"png_rgb", 3},
                                                       {"png_rgba", 4},
                                                       {"png_palette", 3},
                                                       {"png_palette_transparent", 4},
                                                       {"png_one_bit", 1},
                                                       {"jpeg_grey", 1},
                                                       {"jpeg_420", 3},
                                                       {"jpeg_cmyk", 3},
                                                       {"bmp_rgb", 3},
                                                       {"gif_palette", 3},
                                                       {"gif_transparent", 4},
                                                       {"pgm", 1},
                                                       {"ppm", 3}};
  for (const auto& [name, channels] : rows) {
    INFO(std::string(name));
    CHECK((decoded(recorded_file(name), {.channels = 0}).sizes() == at::IntArrayRef({channels, 11, 19})));
  }
}

TEST_CASE("What write_png writes is read again bit for bit") {
  const TemporaryFolder folder;
  for (const std::int64_t channels : {1, 3, 4}) {
    const at::Tensor image = at::randint(0, 256, {channels, 13, 17}, at::kByte);
    data::write_png(image, folder / "a/image.png");
    CHECK(read_image(folder / "a/image.png", {.channels = 0}).equal(image));
    data::write_png(image.to(at::kFloat).div(255), folder / "a/image.png");
    CHECK(read_image(folder / "a/image.png", {.channels = 0}).equal(image));
  }
  CHECK_THROWS_WITH_AS(data::write_png(at::zeros({2, 3, 4}), folder / "x.png"), doctest::Contains("1, 3 or 4 channels"),
                       DataError);
  CHECK_THROWS_AS(data::write_png(at::zeros({3, 3, 4}, at::kLong), folder / "x.png"), DataError);
  CHECK_THROWS_AS(data::write_png(at::Tensor(), folder / "x.png"), DataError);
}

TEST_CASE("What write_jpeg writes is nearly what is read again, the more the better its quality") {
  const TemporaryFolder folder;
  for (const std::int64_t channels : {1, 3}) {
    const at::Tensor image = smooth(channels, 40, 50);
    double before = 100;
    for (const std::int64_t quality : {5, 60, 100}) {
      data::write_jpeg(image, folder / "image.jpg", quality);
      const at::Tensor again = read_image(folder / "image.jpg", {.channels = 0});
      const double error = again.to(at::kFloat).sub(image.to(at::kFloat)).abs().mean().item<double>();
      CHECK(error < before);
      before = error;
    }
    CHECK(before < 1.5);
  }
  CHECK_THROWS_WITH_AS(data::write_jpeg(at::zeros({3, 4, 4}), folder / "x.jpg", 0),
                       doctest::Contains("quality must be from 1 to 100, got 0"), ConfigError);
  CHECK_THROWS_AS(data::write_jpeg(at::zeros({4, 4, 4}), folder / "x.jpg"), DataError);
}

TEST_CASE("A JPEG is decoded at the smallest of its sizes that is enough, and shows the same") {
  const TemporaryFolder folder;
  data::write_jpeg(smooth(3, 200, 320), folder / "image.jpg", 95);
  const struct {
    data::ImageSize enough;
    std::int64_t height, width;
  } rows[] = {{0, 200, 320},          {{25, 40}, 25, 40},   {{26, 40}, 50, 80},    {{1, 41}, 50, 80},
              {{100, 160}, 100, 160}, {{101, 1}, 200, 320}, {{500, 500}, 200, 320}};
  for (const auto& [enough, height, width] : rows) {
    const at::Tensor image = read_image(folder / "image.jpg", {.at_least = enough});
    REQUIRE((image.sizes() == at::IntArrayRef({3, height, width})));
    const at::Tensor reduced =
        at::adaptive_avg_pool2d(smooth(3, 200, 320).to(at::kFloat).unsqueeze(0), {height, width});
    CHECK(image.to(at::kFloat).sub(reduced.squeeze(0)).abs().mean().item<double>() < 1.5);
  }
}

TEST_CASE("The size that is enough is that of the upright image") {
  const TemporaryFolder folder;
  data::write_jpeg(smooth(3, 160, 320), folder / "image.jpg", 95);
  std::string file = text_of(folder / "image.jpg");
  const std::string exif(
      "\xff\xe1\x00\x22"
      "Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0",
      36);
  file.insert(2, exif);
  CHECK((decoded(file).sizes() == at::IntArrayRef({3, 320, 160})));
  CHECK((decoded(file, {.at_least = {80, 40}}).sizes() == at::IntArrayRef({3, 80, 40})));
  CHECK((decoded(file, {.at_least = {40, 80}}).sizes() == at::IntArrayRef({3, 160, 80})));
}

TEST_CASE("image_info tells what read_image gives, without decoding") {
  const TemporaryFolder folder;
  const std::pair<const char*, const char*> rows[] = {
      {"png_rgba", "PNG"}, {"jpeg_exif_6", "JPEG"}, {"bmp_grey", "BMP"}, {"gif_palette", "GIF"}, {"pgm", "PNM"}};
  for (const auto& [name, format] : rows) {
    write(folder / name, recorded_file(name));
    const data::ImageInfo info = data::image_info(folder / name);
    const at::Tensor image = read_image(folder / name, {.channels = 0});
    CHECK(info.format == format);
    CHECK(info.size == data::ImageSize(image.size(1), image.size(2)));
    CHECK(info.channels == image.size(0));
  }
}

TEST_CASE("Values of 16 bits become the nearest of 8, with alpha and palettes of any depth") {
  // 2 x 1 pixels of PGM, up to 1000 and up to 65535
  CHECK(decoded(std::string("P5 2 1 1000\n\x03\xe8\x01\xf4", 16), {.channels = 1})
            .equal(at::tensor({255, 128}, at::kByte).view({1, 1, 2})));
  CHECK(decoded(std::string("P5\n# made by hand\n2 1 65535\n\xff\xff\x80\x00", 32), {.channels = 1})
            .equal(at::tensor({255, 128}, at::kByte).view({1, 1, 2})));
}

TEST_CASE("An option of read_image that is out of range is a ConfigError") {
  const std::string file = recorded_file("png_rgb");
  CHECK_THROWS_WITH_AS(decoded(file, {.channels = 2}), doctest::Contains("channels must be 1, 3 or 4"), ConfigError);
  CHECK_THROWS_WITH_AS(decoded(file, {.max_pixels = 0}), doctest::Contains("max_pixels must be >= 1"), ConfigError);
  CHECK_THROWS_WITH_AS(decoded(file, {.at_least = {-1, 3}}), doctest::Contains("at_least must not be negative"),
                       ConfigError);
  CHECK_THROWS_WITH_AS(decoded(file, {.max_pixels = 208}),
                       doctest::Contains("11 x 19 pixels, more than max_pixels = 208"), DataError);
  CHECK(decoded(file, {.max_pixels = 209}).numel() == 3 * 209);
}

TEST_CASE("A file that is missing, or a folder, is a DataError with its path") {
  const TemporaryFolder folder;
  CHECK_THROWS_WITH_AS(read_image(folder / "none.png"), doctest::Contains("none.png: there is no such file"),
                       DataError);
  CHECK_THROWS_WITH_AS(read_image(folder.path()), doctest::Contains("is not a regular file"), DataError);
}

}  // namespace composer::read_image_test
