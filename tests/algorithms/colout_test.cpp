#include "composer/algorithms/colout.h"

#include <cmath>

#include "composer/core/error.h"
#include "tests/support/cut_and_resumed.h"
#include "tests/support/doctest.h"
#include "tests/support/fake_run.h"
#include "tests/support/tiny_images.h"

namespace composer::test::colout_test {
namespace {

using algorithms::ColOut;
using algorithms::colout_batch;
using algorithms::colout_kept;
using algorithms::ColOutKept;

// [2, 1, height, width] whose pixels tell their row and column.
at::Tensor numbered(std::int64_t height, std::int64_t width) {
  return at::arange(height * width, at::kFloat).view({1, 1, height, width}).repeat({2, 1, 1, 1});
}

Batch drop(ColOut& colout, FakeRun& run, const Batch& batch) {
  run.state.batch = batch;
  colout.apply(Event::AFTER_DATALOADER, run.state, run.logger);
  return run.state.batch;
}

TEST_CASE("colout_kept takes the first of a permutation of the rows and then of the columns, in ascending order") {
  std::vector<std::int64_t> sizes;
  const auto kept = colout_kept(4, 10, 0.5, 0.15, [&](std::int64_t n) {
    sizes.push_back(n);
    return at::arange(n, at::kLong).flip(0);
  });
  CHECK(sizes == std::vector<std::int64_t>{4, 10});
  CHECK(at::equal(kept.rows, at::tensor({2, 3}, at::kLong)));
  CHECK(at::equal(kept.columns, at::arange(2, 10, at::kLong)));  // 8.5 of 10 is 8
}

TEST_CASE("colout_kept loses no row by rounding") {
  const auto kept = colout_kept(10, 10, 0.8, 0.9, [](std::int64_t n) { return at::arange(n, at::kLong); });
  CHECK(kept.rows.size(0) == 2);
  CHECK(kept.columns.size(0) == 1);
}

TEST_CASE("ColOut leaves at least one row and one column") {
  FakeRun run;
  ColOut most({.p_row = 1, .p_col = 0.99}), some;
  const Batch batch = {{"input", numbered(4, 4)}, {"target", at::zeros({2})}};
  CHECK(drop(most, run, batch)["input"].sizes() == at::IntArrayRef({2, 1, 1, 1}));
  CHECK(drop(some, run, {{"input", numbered(1, 100)}, {"target", at::zeros({2})}})["input"].size(2) == 1);
}

TEST_CASE("ColOut drops what a function of the user says") {
  FakeRun run;
  ColOut colout({.draw = [](std::int64_t height, std::int64_t width) -> ColOutKept {
    return {at::full({1}, height - 1, at::kLong), at::arange(0, width, width - 1, at::kLong)};
  }});
  const Batch got = drop(colout, run, {{"input", numbered(3, 4)}, {"target", at::zeros({2})}});
  CHECK(at::equal(got["input"][0][0], at::tensor({8., 11.}, at::kFloat).view({1, 2})));
}

TEST_CASE("colout_batch keeps these rows and columns of every image, of any type") {
  for (const auto type : {at::kFloat, at::kByte, at::kLong}) {
    const at::Tensor got =
        colout_batch(numbered(3, 4).to(type), {at::tensor({0, 2}, at::kLong), at::tensor({1, 3}, at::kLong)});
    CHECK(at::equal(got, at::tensor({1, 3, 9, 11}).to(type).view({1, 1, 2, 2}).repeat({2, 1, 1, 1})));
  }
}

TEST_CASE("ColOut drops the same in the input and in targets of its size, and leaves other targets as they are") {
  FakeRun run;
  ColOut colout({.p_row = 0.25, .p_col = 0.5});
  const at::Tensor images = numbered(8, 6), classes = at::tensor({1, 2}, at::kLong);
  const Batch dense = drop(colout, run, {{"input", images}, {"target", images.squeeze(1)}});
  CHECK(dense["input"].sizes() == at::IntArrayRef({2, 1, 6, 3}));
  CHECK(at::equal(dense["target"], dense["input"].squeeze(1)));
  CHECK(at::equal(drop(colout, run, {{"input", images}, {"target", classes}})["target"], classes));
  ColOut only_input({.resize_target = false});
  CHECK(drop(only_input, run, {{"input", images}, {"target", images}})["target"].is_same(images));
  CHECK_NOTHROW(drop(only_input, run, {{"input", images}}));
}

TEST_CASE("ColOut drops by seed and batch") {
  FakeRun run;
  run.state.seed = 17;
  ColOut colout, other;
  const Batch batch = {{"input", numbered(32, 32)}, {"target", at::zeros({2}, at::kLong)}};
  const at::Tensor first = drop(colout, run, batch)["input"];
  CHECK(at::equal(drop(other, run, batch)["input"], first));
  run.state.timestamp = run.state.timestamp.to_next_batch();
  CHECK_FALSE(at::equal(drop(colout, run, batch)["input"], first));
  run.state.timestamp = {};
  run.state.seed = 18;
  CHECK_FALSE(at::equal(drop(colout, run, batch)["input"], first));
}

TEST_CASE("A run with ColOut that is cut off and resumed ends with the weights of one that is not") {
  check_cut_and_resumed(
      [] {
        TrainerOptions with = tiny_image_options();
        with.algorithms = {ColOut()};
        return with;
      },
      3);
}

TEST_CASE("ColOut refuses inputs that are no images, and options that make no sense") {
  FakeRun run;
  ColOut colout;
  CHECK_THROWS_WITH_AS(drop(colout, run, {{"input", at::ones({2, 5})}, {"target", at::ones({2})}}),
                       "ColOut: needs images [N, C, H, W]; \"input\" is [2, 5]", ConfigError);
  CHECK_THROWS_WITH_AS(ColOut({.p_row = 1.5}), "ColOut: p_row must be from 0 to 1, got 1.5", ConfigError);
  CHECK_THROWS_WITH_AS(ColOut({.p_col = -0.1}), "ColOut: p_col must be from 0 to 1, got -0.1", ConfigError);
  CHECK_THROWS_AS(ColOut({.p_row = NAN}), ConfigError);
  CHECK_THROWS_AS(ColOut({.target_key = ""}), ConfigError);
}

}  // namespace
}  // namespace composer::test::colout_test
