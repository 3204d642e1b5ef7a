#include "composer/data/image/image_preprocessing.h"

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/data/image/image_folder.h"
#include "composer/data/image/read_image.h"
#include "composer/data/image/write_image.h"
#include "tests/support/doctest.h"
#include "tests/support/idx_files.h"
#include "tests/support/saved_by.h"

namespace composer::image_preprocessing_test {

using namespace test;
using data::ImagePreprocessing;
using data::ImagePreprocessingOptions;

namespace {

ImagePreprocessing loaded(ImagePreprocessing& from) {
  ImagePreprocessing other;
  const StateDict saved = saved_by(from);
  StateVisitor visit = StateVisitor::loading(saved, "image");
  other.visit_state(visit);
  return other;
}

}  // namespace

TEST_CASE("A file, its image and a batch of it are prepared to the same tensor") {
  const TemporaryFolder folder;
  const at::Tensor image = at::randint(0, 256, {3, 30, 47}, at::kByte);
  data::write_png(image, folder / "a.png");
  const ImagePreprocessing preprocessing({.resize = 20, .crop = 16, .normalize = data::imagenet_normalize()});
  const at::Tensor expected = preprocessing(image);
  CHECK((expected.sizes() == at::IntArrayRef({3, 16, 16})));
  CHECK((expected.scalar_type() == at::kFloat));
  CHECK(preprocessing.read(folder / "a.png").equal(expected));
  const Batch read = preprocessing.read(std::vector<std::filesystem::path>{folder / "a.png", folder / "a.png"});
  CHECK(read["input"].equal(at::stack({expected, expected})));
  const Batch raw{{"input", at::stack({image, image})}, {"target", at::zeros({2})}};
  const Batch batch = preprocessing.apply(raw);
  CHECK(batch["input"].allclose(read["input"], 0, 1e-5));
  CHECK(batch["target"].equal(raw["target"]));
  CHECK((raw["input"].scalar_type() == at::kByte));
  CHECK(preprocessing.transforms()(image).equal(expected));
}

TEST_CASE("What was saved prepares images as before, whatever the options") {
  const at::Tensor image = at::randint(0, 256, {3, 30, 47}, at::kByte);
  const ImagePreprocessingOptions rows[] = {
      {},
      {.channels = 1, .resize = {20, 24}},
      {.crop = 12, .normalize = data::Normalize{{0.5}, {0.2}}},
      {.resize = 16,
       .crop = {16, 18},
       .interpolation = data::Interpolation::BICUBIC,
       .normalize = data::imagenet_normalize(),
       .image = "photo"},
  };
  for (const ImagePreprocessingOptions& options : rows) {
    ImagePreprocessing first(options), second = loaded(first);
    CHECK(first(image).equal(second(image)));
    CHECK(second.options().image == options.image);
    CHECK(second.name() == "image");
  }
}

TEST_CASE("Images become grey, or get three channels, as the model needs") {
  const at::Tensor colors = at::randint(0, 256, {3, 8, 8}, at::kByte), grey = colors.narrow(0, 0, 1);
  CHECK((ImagePreprocessing({.channels = 1})(colors).sizes() == at::IntArrayRef({1, 8, 8})));
  CHECK((ImagePreprocessing({.channels = 3})(grey).sizes() == at::IntArrayRef({3, 8, 8})));
  CHECK((ImagePreprocessing({.channels = 1})(grey).sizes() == at::IntArrayRef({1, 8, 8})));
  CHECK_THROWS_WITH_AS(ImagePreprocessing()(at::zeros({4, 8, 8})), doctest::Contains("1 or 3 channels, got [4, 8, 8]"),
                       DataError);
}

TEST_CASE("transforms() give the images of a folder the channels of the model") {
  const TemporaryFolder folder;
  const at::Tensor image = at::randint(0, 256, {3, 30, 47}, at::kByte);
  data::write_png(image, folder / "a" / "1.png");
  for (const std::int64_t channels : {1, 3})
    for (const data::ImageSize resize : {data::ImageSize(), data::ImageSize(20)}) {
      const ImagePreprocessing prepare({.channels = channels, .resize = resize, .crop = 16});
      const data::ImageFolder files(folder.path(), {.transform = prepare.transforms()});
      const at::Tensor input = files.get(0, RandomStream(1))["input"];
      CHECK((input.sizes() == at::IntArrayRef({channels, 16, 16})));
      CHECK(input.equal(prepare(image)));
      CHECK(prepare.transforms().enough({100, 200}, RandomStream(1)) ==
            (resize == data::ImageSize() ? data::ImageSize(100, 200) : data::ImageSize(40, 80)));
    }
}

TEST_CASE("Options that are out of range, and files that become unequal, are errors") {
  CHECK_THROWS_WITH_AS(ImagePreprocessing({.channels = 2}), doctest::Contains("channels must be 1 or 3, got 2"),
                       ConfigError);
  CHECK_THROWS_WITH_AS(ImagePreprocessing({.resize = -4}), doctest::Contains("size must be"), ConfigError);
  CHECK_THROWS_WITH_AS(ImagePreprocessing({.image = ""}), doctest::Contains("image must not be empty"), ConfigError);
  const TemporaryFolder folder;
  data::write_png(at::zeros({3, 8, 9}), folder / "a.png");
  data::write_png(at::zeros({3, 8, 7}), folder / "b.png");
  const std::vector<std::filesystem::path> files = {folder / "a.png", folder / "b.png"};
  CHECK_THROWS_WITH_AS(ImagePreprocessing().read(files), doctest::Contains("set crop, or resize to two numbers"),
                       DataError);
  CHECK_THROWS_AS(ImagePreprocessing().read(std::vector<std::filesystem::path>()), DataError);
}

}  // namespace composer::image_preprocessing_test
