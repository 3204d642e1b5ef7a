#include "composer/algorithms/cutout.h"

#include <cmath>

#include "composer/core/error.h"
#include "tests/support/cut_and_resumed.h"
#include "tests/support/doctest.h"
#include "tests/support/fake_run.h"
#include "tests/support/tiny_images.h"

namespace composer::cutout_test {

using algorithms::CutOut;
using algorithms::cutout_batch;
using algorithms::cutout_holes;
using test::FakeRun;

namespace {

at::Tensor cut(CutOut& cutout, FakeRun& run, const at::Tensor& images) {
  run.state.batch = {{"input", images}, {"target", at::zeros({images.size(0)}, at::kLong)}};
  cutout.apply(Event::AFTER_DATALOADER, run.state, run.logger);
  return run.state.batch["input"];
}

}  // namespace

TEST_CASE("cutout_batch hides the same pixels of every image and leaves the batch as it was") {
  for (const auto type : {at::kFloat, at::kByte}) {
    const at::Tensor images = at::ones({2, 3, 4, 5}, type);
    const at::Tensor got = cutout_batch(images, {{1, 2, 3, 5}, {0, 0, 1, 1}});
    at::Tensor mask = at::ones({4, 5}, type);
    mask.slice(0, 1, 3).slice(1, 2, 5).zero_();
    mask.slice(0, 0, 1).slice(1, 0, 1).zero_();
    CHECK(at::equal(got, mask.expand({2, 3, 4, 5})));
    CHECK(at::equal(images, at::ones({2, 3, 4, 5}, type)));
  }
  CHECK(at::equal(cutout_batch(at::ones({1, 1, 2, 2}), {{1, 1, 1, 1}}), at::ones({1, 1, 2, 2})));
}

TEST_CASE("cutout_holes clips the squares, and draws centres outside of the image only if asked to") {
  std::vector<std::int64_t> bounds;
  const auto last = [&](std::int64_t low, std::int64_t high) {
    bounds.insert(bounds.end(), {low, high});
    return high - 1;
  };
  const auto inside = cutout_holes(6, 8, {.length = 0.6}, last);  // sides of 3, of which 2 are used
  CHECK(bounds == std::vector<std::int64_t>{0, 6, 0, 8});
  CHECK(inside.at(0).top == 4);
  CHECK(inside.at(0).bottom == 6);
  CHECK(inside.at(0).left == 6);
  CHECK(inside.at(0).right == 8);
  bounds.clear();
  const auto uniform = cutout_holes(6, 8, {.length = 0.6, .uniform_sampling = true}, last);
  CHECK(bounds == std::vector<std::int64_t>{-2, 7, -2, 9});
  CHECK(uniform.at(0).top == 5);
  CHECK(uniform.at(0).bottom == 6);
}

TEST_CASE("CutOut hides by seed and batch, so that a resumed run hides the same") {
  const at::Tensor images = at::ones({2, 1, 32, 32});
  CutOut cutout, resumed, other;
  FakeRun run;
  run.state.seed = 17;
  const at::Tensor first = cut(cutout, run, images);
  CHECK(first.sum().item<double>() < images.sum().item<double>());
  CHECK(at::equal(first[0], first[1]));
  run.state.timestamp = run.state.timestamp.to_next_batch();
  const at::Tensor next = cut(cutout, run, images);
  CHECK_FALSE(at::equal(first, next));
  CHECK(at::equal(cut(resumed, run, images), next));
  run.state.seed = 18;
  CHECK_FALSE(at::equal(cut(other, run, images), next));
}

TEST_CASE("CutOut hides what a function of the user says") {
  CutOut cutout({.draw = [](std::int64_t height, std::int64_t width) -> std::vector<algorithms::CutOutHole> {
    return {{0, 0, height / 2, width}};
  }});
  FakeRun run;
  CHECK(at::equal(cut(cutout, run, at::ones({2, 1, 4, 4}))[1][0], at::cat({at::zeros({2, 4}), at::ones({2, 4})})));
}

TEST_CASE("A run with CutOut that is cut off and resumed ends with the weights of one that is not") {
  test::check_cut_and_resumed(
      [] {
        TrainerOptions with = test::tiny_image_options();
        with.algorithms = {CutOut()};
        return with;
      },
      3);
}

TEST_CASE("CutOut refuses inputs that are no images, and options that make no sense") {
  CutOut cutout;
  FakeRun run;
  CHECK_THROWS_WITH_AS(cut(cutout, run, at::ones({2, 5})), "CutOut: needs images [N, C, H, W]; \"input\" is [2, 5]",
                       ConfigError);
  CHECK_THROWS_WITH_AS(CutOut({.num_holes = 0}), "CutOut: num_holes must be >= 1, got 0", ConfigError);
  CHECK_THROWS_WITH_AS(CutOut({.length = 1.5}), "CutOut: length must be from 0 to 1, got 1.5", ConfigError);
  CHECK_THROWS_AS(CutOut({.length = NAN}), ConfigError);
  CHECK_THROWS_AS(CutOut({.input_key = ""}), ConfigError);
}

}  // namespace composer::cutout_test
