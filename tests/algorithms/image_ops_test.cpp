#include "composer/algorithms/image_ops.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "composer/core/error.h"
#include "tests/support/doctest.h"
#include "tests/support/warnings.h"

namespace composer::test::image_ops_test {
namespace {

using namespace algorithms;

at::Tensor image(std::int64_t channels, std::int64_t height, std::int64_t width) {
  const at::Tensor i = at::arange(channels * height * width, at::kLong);
  return (i * i * 7 + i * 13 + i.floor_divide(5) * 31)
      .remainder(211)
      .add(20)
      .to(at::kByte)
      .view({1, channels, height, width});
}

// Differs if two values are swapped as well.
std::int64_t digest(const at::Tensor& pixels) {
  const at::Tensor flat = pixels.reshape(-1).to(at::kLong);
  return at::arange(1, flat.numel() + 1, at::kLong).mul(flat).sum().remainder(1'000'000'007).item<std::int64_t>();
}

struct Row {
  ImageOp op;
  double value;
  std::int64_t color, gray;  // digests of what Pillow 13.0 makes of image(3, 17, 23) and image(1, 40, 31)
};

// Of autocontrast(), equalize(), posterize(), solarize() and the classes of ImageEnhance; of rotate() and of
// transform() with AFFINE and BILINEAR.
constexpr Row kPillow[] = {
    {ImageOp::AUTOCONTRAST, 0, 88929175, 98395748},  {ImageOp::EQUALIZE, 0, 117766248, 116182219},
    {ImageOp::POSTERIZE, 1, 43197184, 47821312},     {ImageOp::POSTERIZE, 3, 76249024, 84543648},
    {ImageOp::POSTERIZE, 4, 82122720, 90977744},     {ImageOp::ROTATE, 0, 87276427, 96722195},
    {ImageOp::ROTATE, 7, 82440685, 90776496},        {ImageOp::ROTATE, -29, 72420411, 80754927},
    {ImageOp::ROTATE, 90, 66004133, 76272670},       {ImageOp::ROTATE, 180, 87102461, 94869590},
    {ImageOp::SOLARIZE, 26, 84166310, 94840306},     {ImageOp::SOLARIZE, 128, 51429069, 57396679},
    {ImageOp::SOLARIZE, 256, 87276427, 96722195},    {ImageOp::SHEAR_X, 0.21, 79459197, 79029144},
    {ImageOp::SHEAR_X, -0.3, 77292932, 71261785},    {ImageOp::SHEAR_Y, 0.07, 81869351, 91201007},
    {ImageOp::SHEAR_Y, -0.3, 74307889, 94599045},    {ImageOp::TRANSLATE_X, 3, 75937906, 87182452},
    {ImageOp::TRANSLATE_X, -7, 62505687, 74831783},  {ImageOp::TRANSLATE_Y, 2, 74391681, 87375724},
    {ImageOp::TRANSLATE_Y, -5, 67303604, 95336267},  {ImageOp::COLOR, 0.1, 85817864, 96722195},
    {ImageOp::COLOR, 1, 87276427, 96722195},         {ImageOp::COLOR, 7.5, 90078689, 96722195},
    {ImageOp::CONTRAST, 0.3, 86124269, 95995743},    {ImageOp::CONTRAST, 4.2, 88718767, 97782754},
    {ImageOp::BRIGHTNESS, 0.19, 16238654, 17994189}, {ImageOp::BRIGHTNESS, 6.6, 171832389, 191986278},
    {ImageOp::SHARPNESS, 0, 87422674, 96644335},     {ImageOp::SHARPNESS, 0.4, 87109366, 96399804},
    {ImageOp::SHARPNESS, 8.9, 87578327, 98234280},
};

TEST_CASE("change_images computes what Pillow computes") {
  for (const auto& [op, value, color, gray] : kPillow) {
    CAPTURE(to_string(op));
    CAPTURE(value);
    const std::vector<ImageChange> change = {{op, value}};
    CHECK(digest(change_images(image(3, 17, 23), change)) == color);
    CHECK(digest(change_images(image(1, 40, 31), change)) == gray);
  }
}

TEST_CASE(
    "change_images changes each image by its own operation, as if it were alone, and leaves the batch as it was") {
  std::vector<at::Tensor> images;
  std::vector<ImageChange> changes = {{}};
  for (const Row& row : kPillow) changes.push_back({row.op, row.value});
  for (std::size_t i = 0; i < changes.size(); ++i) images.push_back(image(3, 9, 8).roll(static_cast<std::int64_t>(i)));
  const at::Tensor batch = at::cat(images), before = batch.clone(), got = change_images(batch, changes);
  CHECK(at::equal(got[0], batch[0]));
  for (std::size_t i = 0; i < changes.size(); ++i) {
    CAPTURE(to_string(changes[i].op));
    CHECK(at::equal(got.narrow(0, static_cast<std::int64_t>(i), 1), change_images(images[i], {changes[i]})));
  }
  CHECK(at::equal(batch, before));
}

TEST_CASE("change_images does the operations of an image one after another, for some images more than for others") {
  const at::Tensor images = at::cat({image(3, 8, 8), image(3, 8, 8)});
  const ImageChange invert{ImageOp::SOLARIZE, 0}, left{ImageOp::TRANSLATE_X, 1};
  const at::Tensor got = change_images(images, std::vector<ImageChanges>{{left, invert}, {invert}});
  CHECK(at::equal(got[1], 255 - images[1]));
  CHECK(at::equal(got[0].slice(2, 0, 7), 255 - images[0].slice(2, 1, 8)));
  CHECK(at::equal(got[0].select(2, 7), at::full({3, 8}, 255, at::kByte)));  // from outside: 0, then inverted
}

TEST_CASE("change_images moves pixels in the direction that the operation says") {
  at::Tensor dot = at::zeros({1, 1, 5, 5}, at::kByte);
  dot[0][0][2][2] = 200;
  const auto moved = [&](ImageOp op, std::int64_t row, std::int64_t column) {
    return change_images(dot, std::vector<ImageChange>{{op, 1}})[0][0][row][column].item<int>() == 200;
  };
  CHECK(moved(ImageOp::TRANSLATE_X, 2, 1));
  CHECK(moved(ImageOp::TRANSLATE_Y, 1, 2));
}

TEST_CASE("Images smaller than a filter, of one pixel or of one value are changed without an error") {
  for (const at::Tensor& small : {at::full({1, 3, 2, 2}, 7, at::kByte), at::full({1, 1, 1, 1}, 7, at::kByte)})
    for (const Row& row : kPillow) {
      CAPTURE(to_string(row.op));
      CHECK(change_images(small, std::vector<ImageChange>{{row.op, row.value}}).sizes() == small.sizes());
    }
}

TEST_CASE("draw_image_change scales with the severity and draws what Composer draws") {
  const auto draw = [](ImageOp op, double severity, double at, AugmentationSet set = AugmentationSet::ALL) {
    return draw_image_change(op, severity, set, 32, 64,
                             [at](double low, double high) { return low + (high - low) * at; })
        .value;
  };
  CHECK(draw(ImageOp::POSTERIZE, 9, 1) == 1);  // 4 - int(3.6)
  CHECK(draw(ImageOp::ROTATE, 9, 0.4) == 10);  // int(10.98)
  CHECK(draw(ImageOp::ROTATE, 9, 1) == -27);
  CHECK(draw(ImageOp::SOLARIZE, 9, 1) == 256 - 230);
  CHECK(draw(ImageOp::TRANSLATE_X, 9, 1) == -19);  // int(.9 * 64 / 3)
  CHECK(draw(ImageOp::TRANSLATE_Y, 9, 1) == -9);
  CHECK(draw(ImageOp::SHEAR_X, 10, 1) == doctest::Approx(-0.3));
  CHECK(draw(ImageOp::COLOR, 5, 1) == 5);
  CHECK(draw(ImageOp::COLOR, 5, 0) == doctest::Approx(0.55));
  CHECK(draw(ImageOp::BRIGHTNESS, 5, 1) == 3.75);
  CHECK(draw(ImageOp::COLOR, 10, 1, AugmentationSet::ORIGINAL) == doctest::Approx(1.9));
  CHECK(image_ops_of(AugmentationSet::ALL).size() == 13);
  CHECK(image_ops_of(AugmentationSet::SAFE).size() == 9);
}

TEST_CASE("to_bytes and from_bytes keep uint8 and the 256 levels of floating-point images") {
  const at::Tensor bytes = image(3, 17, 23);
  CHECK(at::equal(to_bytes(bytes, "X"), bytes));
  for (const auto type : {at::kFloat, at::kDouble, at::kHalf}) {
    const at::Tensor images = bytes.to(type).div(255).contiguous(at::MemoryFormat::ChannelsLast);
    CHECK(at::equal(to_bytes(images, "X"), bytes));
    const at::Tensor back = from_bytes(bytes, images);
    CHECK(at::equal(back, images));
    CHECK(back.is_contiguous(at::MemoryFormat::ChannelsLast));
  }
  CHECK_THROWS_WITH_AS(to_bytes(at::zeros({1, 4, 2, 2}), "X"),
                       "X: needs images [N, C, H, W] with one or three channels, got [1, 4, 2, 2]", ConfigError);
  CHECK_THROWS_AS(to_bytes(at::zeros({1, 3, 2, 2}, at::kLong), "X"), ConfigError);
}

TEST_CASE("warn_unless_from_0_to_1 warns of normalized images only") {
  Warnings warnings;
  warn_unless_from_0_to_1(at::rand({1, 3, 4, 4}), "X");
  warn_unless_from_0_to_1(image(3, 4, 4), "X");
  CHECK(warnings.texts.empty());
  warn_unless_from_0_to_1(at::tensor({-2., 0.5}).view({1, 1, 1, 2}), "X");
  CHECK(warnings.say("X: needs images with values from 0 to 1, and these have -2 to 0.5"));
}

}  // namespace
}  // namespace composer::test::image_ops_test
