#include "composer/algorithms/randaugment.h"

#include <cmath>
#include <map>
#include <set>

#include "composer/core/error.h"
#include "tests/support/cut_and_resumed.h"
#include "tests/support/doctest.h"
#include "tests/support/fake_run.h"
#include "tests/support/tiny_images.h"

namespace composer::test::randaugment_test {
namespace {

using namespace algorithms;

at::Tensor augment(RandAugment& algorithm, FakeRun& run, const at::Tensor& images) {
  run.state.batch = {{"input", images}, {"target", at::zeros({images.size(0)}, at::kLong)}};
  algorithm.apply(Event::AFTER_DATALOADER, run.state, run.logger);
  return run.state.batch["input"];
}

TEST_CASE("draw_randaugment draws `depth` operations of the set for each image, each of them equally often") {
  const auto changes = draw_randaugment({6500, 3, 8, 8}, {.depth = 2, .augmentation_set = AugmentationSet::ALL}, 17);
  std::map<ImageOp, int> counts;
  for (const ImageChanges& of_image : changes) {
    CHECK(of_image.size() == 2);
    for (const ImageChange& change : of_image) ++counts[change.op];
  }
  CHECK(counts.size() == 13);
  for (const auto& [op, count] : counts) CHECK(count == doctest::Approx(1000).epsilon(0.15));
  std::set<ImageOp> safe;
  for (const ImageChanges& of_image : draw_randaugment({500, 3, 8, 8}, {.augmentation_set = AugmentationSet::SAFE}, 1))
    for (const ImageChange& change : of_image) safe.insert(change.op);
  CHECK(safe.size() == 9);
}

TEST_CASE("RandAugment changes images by seed and batch, in their own type, and leaves the loader's tensor as it was") {
  FakeRun run;
  run.state.seed = 17;
  RandAugment algorithm, again;
  const at::Tensor images = tiny_images(16, 8)["input"], before = images.clone();
  const at::Tensor first = augment(algorithm, run, images);
  CHECK((first.scalar_type() == at::kFloat));
  CHECK_FALSE(at::equal(first, images));
  CHECK(at::equal(images, before));
  CHECK(at::equal(augment(again, run, images), first));
  run.state.timestamp = run.state.timestamp.to_next_batch();
  CHECK_FALSE(at::equal(augment(algorithm, run, images), first));
  run.state.timestamp = {};
  run.state.seed = 18;
  CHECK_FALSE(at::equal(augment(algorithm, run, images), first));
  const at::Tensor bytes = images.mul(255).to(at::kByte);
  CHECK((augment(algorithm, run, bytes).scalar_type() == at::kByte));
}

TEST_CASE("RandAugment of depth 0 leaves images as they are") {
  FakeRun run;
  RandAugment algorithm({.depth = 0});
  const at::Tensor bytes = tiny_images(4, 8)["input"].mul(255).to(at::kByte);
  CHECK(at::equal(augment(algorithm, run, bytes), bytes));
}

TEST_CASE("A run with RandAugment that is cut off and resumed ends with the weights of one that is not") {
  check_cut_and_resumed(
      [] {
        TrainerOptions with = tiny_image_options();
        with.algorithms = {RandAugment()};
        return with;
      },
      3);
}

TEST_CASE("RandAugment refuses inputs that are no images, and options that make no sense") {
  FakeRun run;
  RandAugment algorithm;
  CHECK_THROWS_WITH_AS(augment(algorithm, run, at::ones({2, 5})),
                       "RandAugment: needs images [N, C, H, W] with one or three channels, got [2, 5]", ConfigError);
  CHECK_THROWS_WITH_AS(RandAugment({.severity = 11}), "RandAugment: severity must be from 0 to 10, got 11",
                       ConfigError);
  CHECK_THROWS_AS(RandAugment({.severity = NAN}), ConfigError);
  CHECK_THROWS_AS(RandAugment({.depth = -1}), ConfigError);
  CHECK_THROWS_AS(RandAugment({.input_key = ""}), ConfigError);
}

}  // namespace
}  // namespace composer::test::randaugment_test
