#include "composer/algorithms/augmix.h"

#include <cmath>
#include <numeric>

#include "composer/core/error.h"
#include "tests/support/cut_and_resumed.h"
#include "tests/support/doctest.h"
#include "tests/support/fake_run.h"
#include "tests/support/tiny_images.h"

namespace composer::test::augmix_test {
namespace {

using namespace algorithms;

constexpr ImageChange kInvert{ImageOp::SOLARIZE, 0};

at::Tensor augment(AugMix& algorithm, FakeRun& run, const at::Tensor& images) {
  run.state.batch = {{"input", images}, {"target", at::zeros({images.size(0)}, at::kLong)}};
  algorithm.apply(Event::AFTER_DATALOADER, run.state, run.logger);
  return run.state.batch["input"];
}

TEST_CASE("augmix_batch weighs the image and its chains, for each image by its own weights") {
  const at::Tensor images = at::full({2, 1, 2, 2}, 55, at::kByte);
  const AugMixDraw half{.mixing = 0.5, .weights = {0.25, 0.75}, .chains = {{kInvert}, {}}};
  const AugMixDraw all{.mixing = 1, .weights = {1, 0}, .chains = {{kInvert}, {kInvert, kInvert}}};
  const at::Tensor got = augmix_batch(images, {half, all});
  CHECK(at::equal(got[0], at::full({1, 2, 2}, 73, at::kByte)));  // 55 / 2 + (200 / 4 + 3 * 55 / 4) / 2 = 73.1
  CHECK(at::equal(got[1], at::full({1, 2, 2}, 200, at::kByte)));
}

TEST_CASE("draw_augmix draws chains of 1 to 3 operations, or of `depth`, and shares that add up to 1") {
  std::vector<int> lengths(4);
  for (const AugMixDraw& draw : draw_augmix({1000, 3, 8, 8}, {}, 17)) {
    CHECK(draw.mixing >= 0);
    CHECK(draw.mixing <= 1);
    CHECK(std::accumulate(draw.weights.begin(), draw.weights.end(), 0.) == doctest::Approx(1));
    CHECK(draw.chains.size() == 3);
    for (const ImageChanges& chain : draw.chains) ++lengths.at(chain.size());
  }
  CHECK(lengths[0] == 0);
  for (const std::size_t length : {1U, 2U, 3U}) CHECK(lengths[length] == doctest::Approx(1000).epsilon(0.15));
  for (const AugMixDraw& draw : draw_augmix({10, 3, 8, 8}, {.depth = 5, .width = 2}, 17)) {
    CHECK(draw.chains.size() == 2);
    CHECK(draw.chains[1].size() == 5);
  }
}

TEST_CASE("draw_augmix draws the shares from the distributions of its alpha") {
  for (const double alpha : {0.3, 1., 5.}) {
    CAPTURE(alpha);
    double of_mixing = 0, of_weights = 0;
    constexpr int kDraws = 4000;
    for (const AugMixDraw& draw : draw_augmix({kDraws, 1, 8, 8}, {.depth = 1, .alpha = alpha}, 17)) {
      of_mixing += std::pow(draw.mixing - 0.5, 2) / kDraws;
      of_weights += std::pow(draw.weights[1] - 1. / 3, 2) / kDraws;
    }
    CHECK(of_mixing == doctest::Approx(1 / (4 * (2 * alpha + 1))).epsilon(0.1));
    CHECK(of_weights == doctest::Approx(2. / 9 / (3 * alpha + 1)).epsilon(0.1));
  }
}

TEST_CASE("AugMix changes images by seed and batch, in their own type, and leaves the loader's tensor as it was") {
  FakeRun run;
  run.state.seed = 17;
  AugMix algorithm, again;
  const at::Tensor images = tiny_images(16, 8)["input"], before = images.clone();
  const at::Tensor first = augment(algorithm, run, images);
  CHECK((first.scalar_type() == at::kFloat));
  CHECK_FALSE(at::equal(first, images));
  CHECK(at::equal(images, before));
  CHECK(at::equal(augment(again, run, images), first));
  run.state.timestamp = run.state.timestamp.to_next_batch();
  CHECK_FALSE(at::equal(augment(algorithm, run, images), first));
}

TEST_CASE("A run with AugMix that is cut off and resumed ends with the weights of one that is not") {
  check_cut_and_resumed(
      [] {
        TrainerOptions with = tiny_image_options();
        with.algorithms = {AugMix()};
        return with;
      },
      3);
}

TEST_CASE("AugMix refuses inputs that are no images, and options that make no sense") {
  FakeRun run;
  AugMix algorithm;
  CHECK_THROWS_WITH_AS(augment(algorithm, run, at::ones({2, 5})),
                       "AugMix: needs images [N, C, H, W] with one or three channels, got [2, 5]", ConfigError);
  CHECK_THROWS_WITH_AS(AugMix({.width = 0}), "AugMix: width must be >= 1, got 0", ConfigError);
  CHECK_THROWS_AS(AugMix({.severity = 11}), ConfigError);
  CHECK_THROWS_AS(AugMix({.alpha = 0}), ConfigError);
  CHECK_THROWS_AS(AugMix({.alpha = NAN}), ConfigError);
}

}  // namespace
}  // namespace composer::test::augmix_test
