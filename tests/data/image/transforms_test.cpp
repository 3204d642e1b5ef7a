#include "composer/data/image/transforms.h"

#include <cmath>
#include <set>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "tests/data/image/recorded.h"
#include "tests/support/doctest.h"

namespace composer::transforms_test {

using namespace data;
using test::recorded_images;

namespace {

at::Tensor recorded(const std::string& name) { return recorded_images().at("transform/" + name); }

at::Tensor made(const Transform& transform, const at::Tensor& image, std::uint64_t seed = 3) {
  RandomStream random(seed);
  return transform(image, random);
}

// An image whose pixels tell where they are: row in channel 0, column in channel 1.
at::Tensor map_of(std::int64_t height, std::int64_t width) {
  return at::stack({at::arange(height).view({-1, 1}).expand({height, width}),
                    at::arange(width).view({1, -1}).expand({height, width}), at::full({height, width}, 7)})
      .to(at::kByte);
}

}  // namespace

TEST_CASE(
    "Transforms make of an image what those of torchvision do, in planes, with channels innermost, and in a batch") {
  const at::Tensor planes = recorded("input"), floats = planes.to(at::kFloat).div(255);
  const at::Tensor inner = planes.permute({1, 2, 0}).contiguous().permute({2, 0, 1});
  const struct {
    const char* name;
    Transform transform;
    double most = 0;  // that a value may differ by
    bool of_floats = false;
  } rows[] = {
      {"resize_16", Resize{16}, 1},
      {"resize_20x64", Resize{{20, 64}}, 1},
      {"resize_16_max_20", Resize{.size = 16, .max_size = 20}, 1},
      {"resize_90", Resize{90}, 1},
      {"resize_16_bicubic", Resize{16, Interpolation::BICUBIC}, 1},
      {"resize_16_nearest", Resize{16, Interpolation::NEAREST}},
      {"resize_16_aliased", Resize{.size = 16, .antialias = false}, 1},
      {"resize_16_float", Resize{16}, 1e-5, true},
      {"center_crop_24", CenterCrop{24}},
      {"center_crop_30x60", CenterCrop{{30, 60}}},
      {"center_crop_48x48", CenterCrop{48}},
      {"pad_1_2_3_4", Pad{.padding = {1, 2, 3, 4}, .fill = 9}},
      {"pad_edge", Pad{.padding = {2, 5}, .mode = PadMode::EDGE}},
      {"pad_reflect", Pad{.padding = {6}, .mode = PadMode::REFLECT}},
      {"flip", RandomHorizontalFlip{1}},
      {"flip_vertical", RandomVerticalFlip{1}},
      {"brightness", ColorJitter{.brightness = {1.3, 1.3}}, 1},
      {"contrast", ColorJitter{.contrast = {0.6, 0.6}}, 1},
      {"saturation", ColorJitter{.saturation = {1.7, 1.7}}, 1},
      {"hue", ColorJitter{.hue = {0.2, 0.2}}, 1},
      {"hue_float", ColorJitter{.hue = {-0.4, -0.4}}, 1e-5, true},
      {"contrast_float", ColorJitter{.contrast = {1.4, 1.4}}, 1e-5, true},
      {"grayscale", Grayscale{}, 1},
      {"rotate_30", RandomRotation{.degrees = {30, 30}}},
      {"rotate_30_bilinear",
       RandomRotation{
           .degrees = {30, 30},
           .interpolation = Interpolation::BILINEAR,
       },
       1},
      {"affine",
       RandomAffine{
           .degrees = {20, 20}, .scale = {1.2, 1.2}, .shear = {10, 10}, .interpolation = Interpolation::BILINEAR},
       1},
      {"normalize", imagenet_normalize(), 1e-5},
  };
  for (const auto& [name, transform, most, of_floats] : rows) {
    INFO(std::string(name));
    const at::Tensor expected = recorded(name);
    for (const at::Tensor& image : of_floats ? std::vector{floats} : std::vector{planes, inner}) {
      const at::Tensor before = image.clone(), result = made(transform, image);
      REQUIRE((result.sizes() == expected.sizes()));
      CHECK((result.scalar_type() == expected.scalar_type()));
      const at::Tensor wrong = result.to(at::kDouble).sub(expected.to(at::kDouble)).abs().gt(most);
      // Which pixel is the nearest may be a matter of the last bit.
      const bool nearest = std::string(name) == "rotate_30";
      CHECK(wrong.to(at::kDouble).mean().item<double>() <= (nearest ? 0.005 : 0));
      const at::Tensor batch = made(transform, at::stack({image, image.flip({1})}));
      CHECK(batch[0].to(at::kDouble).sub(result.to(at::kDouble)).abs().max().item<double>() <= 1e-6);
      CHECK(image.equal(before));
    }
  }
}

TEST_CASE("RandomResizedCrop takes parts of the shares and shapes that are asked for, from everywhere") {
  const at::Tensor image = map_of(120, 160).to(at::kFloat);
  const Transform crop = RandomResizedCrop{.size = 16, .scale = {0.2, 0.5}, .interpolation = Interpolation::NEAREST};
  std::set<int> corners;
  double least = 1, most = 0;
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    const at::Tensor part = made(crop, image, seed * 1000);
    REQUIRE((part.sizes() == at::IntArrayRef({3, 16, 16})));
    // Of n pixels, nearest takes 0 and about n / 16 less than n.
    const double height = (part[0].max() - part[0].min()).item<double>() * 16 / 15;
    const double width = (part[1].max() - part[1].min()).item<double>() * 16 / 15;
    const double share = height * width / (120 * 160), ratio = width / height;
    CHECK(ratio > 0.70);
    CHECK(ratio < 1.42);
    least = std::min(least, share);
    most = std::max(most, share);
    corners.insert((part[0].min().item<double>() > 20 ? 1 : 0) + (part[1].min().item<double>() > 20 ? 2 : 0));
  }
  CHECK(least > 0.17);
  CHECK(least < 0.24);
  CHECK(most > 0.46);
  CHECK(most < 0.56);
  CHECK(corners.size() == 4);
}

TEST_CASE("RandomResizedCrop takes the middle of an image that has no part of an allowed shape") {
  const at::Tensor image = map_of(10, 200);
  const at::Tensor part = made(RandomResizedCrop{.size = {10, 20}, .scale = {1, 1}, .ratio = {2, 2}}, image);
  CHECK(part[1].min().item<int>() == 90);
  CHECK(part[1].max().item<int>() == 109);
}

TEST_CASE("RandomCrop takes each place equally often, also in a border") {
  const at::Tensor image = map_of(5, 6);
  std::map<std::pair<int, int>, int> places;
  RandomStream random(5);
  const Transform crop = RandomCrop{.size = {3, 4}};
  for (int i = 0; i < 1800; ++i) {
    const at::Tensor part = crop(image, random);
    ++places[{part[0][0][0].item<int>(), part[1][0][0].item<int>()}];
  }
  CHECK(places.size() == 9);
  for (const auto& [place, times] : places) CHECK(std::abs(times - 200) < 70);
  CHECK((made(RandomCrop{.size = 5, .padding = {4}}, image).sizes() == at::IntArrayRef({3, 5, 5})));
  CHECK((made(RandomCrop{.size = 20, .pad_if_needed = true}, image).sizes() == at::IntArrayRef({3, 20, 20})));
  CHECK_THROWS_WITH_AS(made(RandomCrop{.size = 6}, image), doctest::Contains("5 x 6 pixels has no part of 6 x 6"),
                       DataError);
}

TEST_CASE("A random transform does something as often as p says") {
  const at::Tensor image = map_of(8, 8);
  for (const double p : {0.0, 0.25, 1.0}) {
    const Transform transforms[] = {RandomHorizontalFlip{p}, RandomVerticalFlip{p}, RandomGrayscale{p},
                                    RandomErasing{.p = p, .value = 200}};
    for (const Transform& transform : transforms) {
      RandomStream random(17);
      int changed = 0;
      for (int i = 0; i < 1000; ++i) changed += transform(image, random).equal(image) ? 0 : 1;
      CHECK(std::abs(changed - 1000 * p) < 60);
    }
  }
}

TEST_CASE("ColorJitter draws factors of the whole range, and leaves what is not asked for") {
  const at::Tensor grey = at::full({1, 2, 2}, 0.4);
  RandomStream random(1);
  const Transform jitter = ColorJitter{.brightness = 0.5};
  double least = 1, most = 0;
  for (int i = 0; i < 500; ++i) {
    const double value = jitter(grey, random).mean().item<double>();
    least = std::min(least, value);
    most = std::max(most, value);
  }
  CHECK(least == doctest::Approx(0.2).epsilon(0.03));
  CHECK(most == doctest::Approx(0.6).epsilon(0.03));
  const at::Tensor image = recorded("input");
  CHECK(made(ColorJitter{}, image).equal(image));
  CHECK(made(ColorJitter{.hue = {0.5, 0.5}}, made(ColorJitter{.hue = {0.5, 0.5}}, image.to(at::kFloat).div(255)))
            .allclose(image.to(at::kFloat).div(255), 0, 1e-5));
}

TEST_CASE("A full turn, and a scale of 1, leave the image as it is") {
  const at::Tensor image = recorded("input");
  CHECK(made(RandomRotation{.degrees = {360, 360}}, image).equal(image));
  CHECK(made(RandomRotation{.degrees = {180, 180}}, image).equal(image.flip({1, 2})));
  CHECK(made(RandomAffine{.degrees = 0.0}, image).equal(image));
  const at::Tensor even = at::full({3, 20, 20}, 50, at::kByte);
  for (const Interpolation how : {Interpolation::NEAREST, Interpolation::BILINEAR})
    CHECK(made(RandomRotation{.degrees = 180.0, .interpolation = how, .fill = 50}, even).equal(even));
  const at::Tensor moved = made(RandomAffine{.degrees = 0.0, .translate_x = 0.5, .translate_y = 0.5, .fill = 3}, image);
  CHECK_FALSE(moved.equal(image));
}

TEST_CASE("The same stream gives the same image, another one another") {
  const at::Tensor image = recorded("input");
  const Transforms augment{RandomResizedCrop{16},           RandomHorizontalFlip{}, ColorJitter{0.4, 0.4, 0.4, 0.1},
                           RandomRotation{.degrees = 10.0}, imagenet_normalize(),   RandomErasing{}};
  RandomStream a(1), b(1), c(2);
  const at::Tensor first = augment(image, a);
  CHECK(first.equal(augment(image, b)));
  CHECK_FALSE(first.equal(augment(image, c)));
  CHECK((first.scalar_type() == at::kFloat));
  RandomStream again(1);
  CHECK(first.equal(Transforms{Transform(augment)}(image, again)));
}

TEST_CASE("Transforms that draw are not applied without a stream, and all others are") {
  const at::Tensor image = recorded("input");
  const Transforms plain{Resize{16}, CenterCrop{8}, imagenet_normalize(), [](const at::Tensor& x) { return x.neg(); }};
  CHECK_FALSE(plain.draws());
  RandomStream random(1);
  CHECK(plain(image).equal(plain(image, random)));
  CHECK(Transforms{Transform(plain)}(image).equal(plain(image)));
  CHECK(Transforms{}(image).equal(image));
  const Transforms random_ones[] = {
      {Resize{16}, RandomHorizontalFlip{}},
      {Transform(Transforms{RandomErasing{}})},
      {[](const at::Tensor& x, RandomStream& stream) { return x.add(static_cast<std::int64_t>(stream.below(3))); }}};
  for (const Transforms& transforms : random_ones) {
    CHECK(transforms.draws());
    CHECK_THROWS_WITH_AS(transforms(image), doctest::Contains("some of these are random, and need a RandomStream"),
                         ConfigError);
    CHECK_NOTHROW(transforms(image, random));
  }
}

TEST_CASE("A function of yours is a transform, with random numbers or without") {
  const Transforms transforms{[](const at::Tensor& image) { return image.add(1); },
                              [](const at::Tensor& image, RandomStream& random) {
                                return image.mul(static_cast<std::int64_t>(random.below(1)));
                              }};
  RandomStream random(2);
  CHECK(transforms(map_of(3, 4), random).eq(0).all().item<bool>());
}

TEST_CASE("ToFloat and Normalize give planes of float32, and take floats as they are") {
  const at::Tensor image = recorded("input");
  const at::Tensor floats = made(ToFloat{}, image.permute({1, 2, 0}).contiguous().permute({2, 0, 1}));
  CHECK(floats.is_contiguous());
  CHECK(floats.allclose(image.to(at::kFloat).div(255), 0, 1e-7));
  CHECK(made(ToFloat{}, floats).equal(floats));
  CHECK(made(imagenet_normalize(), floats).allclose(made(imagenet_normalize(), image), 0, 1e-5));
  CHECK(made(Normalize{{0.5}, {0.25}}, image).allclose(floats.sub(0.5).div(0.25), 0, 1e-5));
  CHECK_THROWS_WITH_AS(made(Normalize{{0.5, 0.5}, {1, 1}}, image), doctest::Contains("got 2 for images [3, 37, 53]"),
                       ConfigError);
}

TEST_CASE("A parameter that is out of range is a ConfigError when the transforms are made") {
  const std::pair<std::function<Transform()>, const char*> rows[] = {
      {[] { return Resize{0}; }, "Resize: size must be one or two numbers >= 1, got 0 x 0"},
      {[] {
         return Resize{{3, -1}};
       },
       "Resize: size must be"},
      {[] { return Resize{.size = 10, .max_size = 5}; }, "Resize: max_size must be at least size"},
      {[] { return CenterCrop{-3}; }, "CenterCrop: size must be"},
      {[] { return Pad{}; }, "Pad: padding must be 1, 2 or 4 numbers, got none"},
      {[] {
         return Pad{.padding = {1, 2, 3}};
       },
       "padding must be 1, 2 or 4 numbers, got 3"},
      {[] { return Pad{.padding = {-1}}; }, "padding must be >= 0, got -1"},
      {[] { return RandomCrop{.size = 0}; }, "RandomCrop: size must be"},
      {[] {
         return RandomResizedCrop{.size = 8, .scale = {0.5, 0.2}};
       },
       "scale must be a range within"},
      {[] {
         return RandomResizedCrop{.size = 8, .scale = {0.5, 2}};
       },
       "got 0.5 to 2"},
      {[] {
         return RandomResizedCrop{.size = 8, .ratio = {0, 2}};
       },
       "ratio must be a range within"},
      {[] { return RandomHorizontalFlip{1.5}; }, "RandomHorizontalFlip: p must be from 0 to 1, got 1.5"},
      {[] { return RandomVerticalFlip{std::nan("")}; }, "p must be from 0 to 1, got nan"},
      {[] { return ColorJitter{.brightness = -1.0}; }, "ColorJitter: brightness must be >= 0, got -1"},
      {[] { return ColorJitter{.hue = 0.7}; }, "hue must be a range within -0.5 to 0.5, got -0.7 to 0.7"},
      {[] { return Grayscale{2}; }, "Grayscale: channels must be 1 or 3, got 2"},
      {[] { return RandomRotation{.degrees = -3.0}; }, "RandomRotation: degrees must be >= 0, got -3"},
      {[] { return RandomAffine{.degrees = 3.0, .translate_x = 2}; }, "must be from 0 to 1, got 2"},
      {[] {
         return RandomAffine{.degrees = 3.0, .scale = {0, 1}};
       },
       "RandomAffine: scale must be a range within"},
      {[] { return RandomErasing{.p = 2}; }, "RandomErasing: p must be from 0 to 1"},
      {[] {
         return Transform(Normalize{{0.5}, {}});
       },
       "Normalize: needs one mean and one stddev"},
      {[] {
         return Transform(Normalize{{0.5}, {0}});
       },
       "Normalize: stddev must be > 0, got 0"},
  };
  for (const auto& [make, text] : rows) CHECK_THROWS_WITH_AS(make(), doctest::Contains(text), ConfigError);
}

TEST_CASE("What is no image is a DataError with its shape and type") {
  CHECK_THROWS_WITH_AS(made(Resize{8}, at::zeros({4, 4})), doctest::Contains("got [4, 4] of Float"), DataError);
  CHECK_THROWS_WITH_AS(made(CenterCrop{8}, at::zeros({3, 4, 4}, at::kLong)), doctest::Contains("of Long"), DataError);
  for (const Transform& transform :
       {Transform(Resize{8}), Transform(ColorJitter{.hue = {0.2, 0.2}}), Transform(RandomResizedCrop{8}),
        Transform(CenterCrop{4}), Transform(RandomErasing{1}), Transform(imagenet_normalize())})
    for (const at::Tensor& none : {at::zeros({3, 0, 4}), at::zeros({3, 4, 0}), at::zeros({0, 4, 4})})
      CHECK_THROWS_WITH_AS(made(transform, none), doctest::Contains("of one pixel or more"), DataError);
  CHECK_THROWS_WITH_AS(made(ToFloat{}, at::Tensor()), doctest::Contains("no tensor"), DataError);
  CHECK_THROWS_WITH_AS(made(Pad{.padding = {6}, .mode = PadMode::REFLECT}, at::zeros({3, 4, 9})),
                       doctest::Contains("too small"), DataError);
}

TEST_CASE("The size that is enough leaves twice the pixels that the first transform needs") {
  const RandomStream random(4);
  CHECK(Transforms{Resize{100}}.enough({1000, 2000}, random) == ImageSize(200, 400));
  CHECK(Transforms{Resize{600}}.enough({1000, 2000}, random) == ImageSize(1000, 2000));
  CHECK(Transforms{Resize{{100, 100}}}.enough({1000, 2000}, random) == ImageSize(200, 400));
  CHECK(Transforms{CenterCrop{10}, Resize{5}}.enough({1000, 2000}, random) == ImageSize(1000, 2000));
  CHECK(Transforms{}.enough({1000, 2000}, random) == ImageSize(1000, 2000));
  for (const Transform& single_pixels :
       {Transform(Resize{100, Interpolation::NEAREST}), Transform(Resize{.size = 100, .antialias = false}),
        Transform(RandomResizedCrop{.size = 100, .interpolation = Interpolation::NEAREST}),
        Transform(RandomResizedCrop{.size = 100, .antialias = false})})
    CHECK(Transforms{single_pixels}.enough({1000, 2000}, random) == ImageSize(1000, 2000));
  const ImageSize half =
      Transforms{RandomResizedCrop{.size = 100, .scale = {1, 1}, .ratio = {1, 1}}}.enough({1000, 1000}, random);
  CHECK(half == ImageSize(200, 200));
}

}  // namespace composer::transforms_test
