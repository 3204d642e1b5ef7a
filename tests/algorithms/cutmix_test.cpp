#include "composer/algorithms/cutmix.h"

#include <cmath>

#include "composer/core/error.h"
#include "tests/support/cut_and_resumed.h"
#include "tests/support/doctest.h"
#include "tests/support/fake_run.h"
#include "tests/support/tiny_images.h"

namespace composer::test::cutmix_test {
namespace {

using algorithms::CutMix;
using algorithms::cutmix_batch;
using algorithms::cutmix_box;
using algorithms::CutMixDraw;

const at::Tensor kSwap = at::tensor({1, 0}, at::kLong);

// Two images of zeros and ones, with these targets.
Batch two_images(const at::Tensor& target, std::int64_t side = 8) {
  return {{"input", at::stack({at::zeros({1, side, side}), at::ones({1, side, side})})}, {"target", target}};
}

at::Tensor cut(CutMix& cutmix, FakeRun& run, const at::Tensor& target) {
  run.state.batch = two_images(target);
  cutmix.apply(Event::BEFORE_FORWARD, run.state, run.logger);
  return run.state.batch["input"];
}

TEST_CASE("cutmix_batch pastes the box of the other image, and leaves the batch as it was") {
  for (const auto type : {at::kFloat, at::kByte}) {
    const at::Tensor input = at::stack({at::zeros({1, 4, 5}), at::ones({1, 4, 5})}).to(type), before = input.clone();
    const auto [got, target, kept] = cutmix_batch(input, at::tensor({3, 4}, at::kLong), kSwap, {1, 2, 3, 5});
    at::Tensor mask = at::zeros({1, 4, 5}, type);
    mask.slice(1, 1, 3).slice(2, 2, 5).fill_(1);
    CHECK(at::equal(got, at::stack({mask, 1 - mask})));
    CHECK(at::equal(target, at::tensor({4, 3}, at::kLong)));
    CHECK(kept == 1 - 6. / 20);
    CHECK(at::equal(input, before));
  }
}

TEST_CASE("cutmix_batch pastes the box into targets of the size of the images") {
  const at::Tensor masks = at::stack({at::full({4, 4}, 7, at::kLong), at::full({4, 4}, 9, at::kLong)});
  const auto [input, target, kept] = cutmix_batch(at::zeros({2, 3, 4, 4}), masks, kSwap, {0, 0, 2, 4});
  at::Tensor wanted = masks.clone();
  wanted.slice(1, 0, 2).copy_(masks.slice(1, 0, 2).flip(0));
  CHECK(at::equal(target, wanted));
}

TEST_CASE("cutmix_box clips the box, and draws centres outside of the image only if asked to") {
  std::vector<std::int64_t> bounds;
  const auto last = [&](std::int64_t low, std::int64_t high) {
    bounds.insert(bounds.end(), {low, high});
    return high - 1;
  };
  const auto inside = cutmix_box(6, 8, 0.5, false, last);  // sides of 3 and 4, of which 2 and 4 are used
  CHECK(bounds == std::vector<std::int64_t>{0, 6, 0, 8});
  CHECK((inside.top == 4 && inside.bottom == 6 && inside.left == 5 && inside.right == 8));
  bounds.clear();
  const auto uniform = cutmix_box(6, 8, 0.5, true, last);
  CHECK(bounds == std::vector<std::int64_t>{-2, 7, -2, 10});
  CHECK((uniform.top == 5 && uniform.bottom == 6 && uniform.left == 7 && uniform.right == 8));
  const auto golden = cutmix_box(8, 8, std::sqrt(1 - 0.75), false, [](std::int64_t, std::int64_t) { return 2; });
  CHECK((golden.top == 0 && golden.left == 0 && golden.bottom == 4 && golden.right == 4));
}

TEST_CASE("CutMix mixes targets before the loss by the share of the image that was replaced") {
  CutMix cutmix;
  FakeRun run;
  bool has_mixed = false;
  for (int i = 0; i < 20; ++i) {
    run.state.timestamp = run.state.timestamp.to_next_batch();
    const at::Tensor target = at::tensor({0, 2}, at::kLong), input = cut(cutmix, run, target);
    CHECK(at::equal(run.state.batch["target"], target));
    run.state.outputs = at::zeros({2, 3});
    cutmix.apply(Event::BEFORE_LOSS, run.state, run.logger);
    const double replaced = input[0].mean().item<double>();
    has_mixed = has_mixed || replaced > 0;
    CHECK(at::allclose(run.state.batch["target"],
                       at::tensor({1 - replaced, 0., replaced, replaced, 0., 1 - replaced}, at::kFloat).view({2, 3})));
  }
  CHECK(has_mixed);
}

TEST_CASE("CutMix leaves targets of the size of the images without further mixing") {
  CutMix cutmix;
  FakeRun run;
  for (int i = 0; i < 20; ++i) {
    run.state.timestamp = run.state.timestamp.to_next_batch();
    const at::Tensor input = cut(cutmix, run, at::stack({at::zeros({8, 8}), at::ones({8, 8})}).to(at::kLong));
    run.state.outputs = at::zeros({2, 2, 8, 8});
    cutmix.apply(Event::BEFORE_LOSS, run.state, run.logger);
    CHECK(at::equal(run.state.batch["target"], input.squeeze(1).to(at::kLong)));
  }
}

TEST_CASE("CutMix that interpolates the loss weighs the losses of both targets") {
  CutMix cutmix({.interpolate_loss = true});
  CHECK(cutmix.interpolates_loss());
  FakeRun run;
  const auto model = tiny_image_model();
  run.state.model = Handle<Model>(model);
  run.state.seed = 3;
  const at::Tensor target = at::tensor({0, 2}, at::kLong), input = cut(cutmix, run, target);
  const double replaced = input[0].mean().item<double>();
  REQUIRE(replaced > 0);
  run.state.outputs = model->forward(run.state.batch);
  run.state.loss = model->loss(run.state.outputs, run.state.batch);
  const at::Tensor first = run.state.loss.only();
  Batch other = run.state.batch;
  other.set("target", target.flip(0));
  const at::Tensor second = model->loss(run.state.outputs, other).only();
  cutmix.apply(Event::BEFORE_BACKWARD, run.state, run.logger);
  CHECK(at::allclose(run.state.loss["total"], first * (1 - replaced) + second * replaced));
  CHECK(at::equal(run.state.batch["target"], target));
}

TEST_CASE("CutMix draws by seed, batch and microbatch") {
  FakeRun run;
  run.state.seed = 17;
  const auto draw = [&](CutMix& cutmix) {
    run.state.batch = {{"input", at::rand({16, 1, 16, 16}, at::detail::createCPUGenerator(1))},
                       {"target", at::zeros({16}, at::kLong)}};
    cutmix.apply(Event::BEFORE_FORWARD, run.state, run.logger);
    return run.state.batch["input"];
  };
  CutMix cutmix, again, other_seed;
  const at::Tensor first = draw(cutmix), second = draw(cutmix);
  CHECK_FALSE(at::equal(first, second));
  CHECK(at::equal(draw(again), first));
  CHECK(at::equal(draw(again), second));
  again.apply(Event::BEFORE_TRAIN_BATCH, run.state, run.logger);
  CHECK(at::equal(draw(again), first));
  run.state.seed = 18;
  CHECK_FALSE(at::equal(draw(other_seed), first));
}

TEST_CASE("CutMix cuts what a function of the user says, for each microbatch") {
  std::vector<std::vector<std::int64_t>> asked;
  CutMix cutmix({.draw = [&](std::int64_t samples, std::int64_t height, std::int64_t width) -> CutMixDraw {
    asked.push_back({samples, height, width});
    return {kSwap, {0, 0, 4, 8}};
  }});
  FakeRun run;
  const at::Tensor input = cut(cutmix, run, at::tensor({0, 2}, at::kLong));
  CHECK(asked == std::vector<std::vector<std::int64_t>>{{2, 8, 8}});
  CHECK(at::equal(input[0][0], at::cat({at::ones({4, 8}), at::zeros({4, 8})})));
  run.state.outputs = at::zeros({2, 3});
  cutmix.apply(Event::BEFORE_LOSS, run.state, run.logger);
  CHECK(at::equal(run.state.batch["target"], at::tensor({0.5, 0., 0.5, 0.5, 0., 0.5}, at::kFloat).view({2, 3})));
}

TEST_CASE("A run with CutMix that is cut off and resumed ends with the weights of one that is not") {
  check_cut_and_resumed(
      [] {
        TrainerOptions with = tiny_image_options();
        with.algorithms = {CutMix()};
        return with;
      },
      3);
}

TEST_CASE("CutMix refuses inputs that are no images, masks with interpolate_loss, and options that make no sense") {
  FakeRun run;
  CutMix cutmix, interpolating({.interpolate_loss = true});
  run.state.batch = {{"input", at::ones({2, 5})}, {"target", at::zeros({2}, at::kLong)}};
  CHECK_THROWS_WITH_AS(cutmix.apply(Event::BEFORE_FORWARD, run.state, run.logger),
                       "CutMix: needs images [N, C, H, W]; \"input\" is [2, 5]", ConfigError);
  CHECK_THROWS_WITH_AS(cut(interpolating, run, at::zeros({2, 8, 8}, at::kLong)),
                       "CutMix: interpolate_loss needs one target per image; \"target\" is [2, 8, 8]", ConfigError);
  CHECK_THROWS_WITH_AS(CutMix({.alpha = 0}), "CutMix: alpha must be > 0, got 0", ConfigError);
  CHECK_THROWS_AS(CutMix({.alpha = NAN}), ConfigError);
  CHECK_THROWS_AS(CutMix({.input_key = ""}), ConfigError);
}

}  // namespace
}  // namespace composer::test::cutmix_test
