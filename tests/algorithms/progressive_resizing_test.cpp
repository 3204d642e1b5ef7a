#include "composer/algorithms/progressive_resizing.h"

#include "composer/core/error.h"
#include "tests/support/cut_and_resumed.h"
#include "tests/support/doctest.h"
#include "tests/support/fake_run.h"
#include "tests/support/tiny_images.h"
#include "tests/support/warnings.h"

namespace composer::test::progressive_resizing_test {
namespace {

using algorithms::ProgressiveResizing;
using algorithms::ProgressiveResizingOptions;
using algorithms::resize_batch;
using algorithms::ResizingMode;

std::int64_t first(std::int64_t) { return 0; }

// The width of images of this width when so many of 100 batches are done.
std::int64_t width_at(const ProgressiveResizingOptions& options, std::int64_t batch, std::int64_t width) {
  ProgressiveResizing resizing(options);
  FakeRun run;
  run.state.max_duration = Time(100, TimeUnit::BATCH);
  for (std::int64_t i = 0; i < batch; ++i) run.state.timestamp = run.state.timestamp.to_next_batch();
  run.state.batch = {{"input", at::zeros({1, 1, width, width})}, {"target", at::zeros({1})}};
  resizing.apply(Event::AFTER_DATALOADER, run.state, run.logger);
  const at::Tensor input = run.state.batch["input"];
  CHECK(run.log.values.at("progressive_resizing/width").back() == static_cast<double>(input.size(3)));
  CHECK(run.log.values.at("progressive_resizing/height").back() == static_cast<double>(input.size(2)));
  return input.size(3);
}

TEST_CASE("resize_batch takes the nearest pixels, of any type") {
  const at::Tensor images = at::arange(16, at::kFloat).view({1, 1, 4, 4});
  for (const auto type : {at::kFloat, at::kByte, at::kLong}) {
    const auto got = resize_batch(images.to(type), at::zeros({1}), 0.5, ResizingMode::RESIZE, false, first);
    CHECK(at::equal(got.input, at::tensor({0, 2, 8, 10}).to(type).view({1, 1, 2, 2})));
  }
}

TEST_CASE("resize_batch crops at the sampled row and column") {
  const at::Tensor images = at::arange(24, at::kFloat).view({1, 1, 4, 6});
  std::vector<std::int64_t> bounds;
  const auto last = [&](std::int64_t high) {
    bounds.push_back(high);
    return high - 1;
  };
  const auto got = resize_batch(images, images, 0.5, ResizingMode::CROP, true, last);
  CHECK(bounds == std::vector<std::int64_t>{3, 4});
  CHECK(at::equal(got.input, images.slice(2, 2, 4).slice(3, 3, 6)));
  CHECK(at::equal(got.target, got.input));
}

TEST_CASE("resize_batch resizes targets of the size of the images only, and if asked to") {
  const at::Tensor images = at::rand({2, 3, 8, 8}), masks = at::randint(5, {2, 8, 8}, at::kLong);
  const at::Tensor classes = at::zeros({2}, at::kLong);
  CHECK(resize_batch(images, masks, 0.5, ResizingMode::RESIZE, true, first).target.sizes() ==
        at::IntArrayRef({2, 4, 4}));
  CHECK(resize_batch(images, masks, 0.5, ResizingMode::RESIZE, false, first).target.is_same(masks));
  CHECK(resize_batch(images, classes, 0.5, ResizingMode::RESIZE, true, first).target.is_same(classes));
  CHECK(resize_batch(images, classes, 1, ResizingMode::RESIZE, true, first).input.is_same(images));
}

TEST_CASE("ProgressiveResizing waits, grows in steps of size_increment, and ends with images of their own size") {
  const ProgressiveResizingOptions options{.initial_scale = 0.5, .finetune_fraction = 0.2, .delay_fraction = 0.4};
  struct Row {
    std::int64_t batch, width;
  };
  for (const auto& [batch, width] :
       {Row{0, 16}, Row{39, 16}, Row{40, 16}, Row{45, 16}, Row{46, 20}, Row{60, 24}, Row{79, 32}, Row{99, 32}}) {
    CAPTURE(batch);
    CHECK(width_at(options, batch, 32) == width);
  }
}

TEST_CASE("The width of smaller images is a multiple of size_increment, whatever their own width is") {
  for (std::int64_t width = 8; width <= 512; width += width < 100 ? 1 : 4)
    for (const std::int64_t batch : {0, 45, 60, 75}) {
      const std::int64_t used = width_at({.delay_fraction = 0.4}, batch, width);
      if (used % 4 != 0 && used != width) FAIL_CHECK(width, " columns become ", used, " at batch ", batch);
    }
}

TEST_CASE("Crops of ProgressiveResizing reach every row and every column") {
  ProgressiveResizing resizing({.mode = ResizingMode::CROP, .size_increment = 1});
  FakeRun run;
  run.state.max_duration = "1000ba";
  at::Tensor seen = at::zeros({1, 1, 4, 4});
  for (int batch = 0; batch < 100; ++batch) {
    run.state.timestamp = run.state.timestamp.to_next_batch();
    run.state.batch = {{"input", at::arange(16).view({1, 1, 4, 4})}, {"target", at::zeros({1})}};
    resizing.apply(Event::AFTER_DATALOADER, run.state, run.logger);
    seen.view(-1).index_fill_(0, run.state.batch["input"].flatten(), 1);
  }
  CHECK(seen.all().item<bool>());
}

TEST_CASE("ProgressiveResizing without time to grow jumps from the first to the last size") {
  const ProgressiveResizingOptions options{.finetune_fraction = 0.5, .delay_fraction = 0.5};
  CHECK(width_at(options, 49, 32) == 16);
  CHECK(width_at(options, 50, 32) == 32);
}

TEST_CASE("ProgressiveResizing ends with images of their own size, also if that is no multiple of size_increment") {
  for (const std::int64_t width : {26, 27, 30, 34}) {
    CAPTURE(width);
    CHECK(width_at({.finetune_fraction = 0.2}, 80, width) == width);
    CHECK(width_at({.initial_scale = 1}, 0, width) == width);
  }
}

TEST_CASE("ProgressiveResizing leaves at least size_increment columns") {
  CHECK(width_at({.initial_scale = 0}, 0, 32) == 4);
  CHECK(width_at({.initial_scale = 0.5}, 0, 2) == 2);
}

TEST_CASE("ProgressiveResizing warns once of a run of epochs that ends before images of their own size are trained") {
  for (const auto& [epochs, warns] : {std::pair{4, true}, {5, false}}) {
    CAPTURE(epochs);
    Warnings warnings;
    ProgressiveResizing resizing;
    FakeRun run;
    run.state.max_duration = Time(epochs, TimeUnit::EPOCH);
    for (int i = 0; i < 2; ++i) {
      run.state.batch = {{"input", at::zeros({1, 1, 8, 8})}};
      resizing.apply(Event::AFTER_DATALOADER, run.state, run.logger);
    }
    CHECK(warnings.texts.size() == (warns ? 1 : 0));
    CHECK(warnings.say("no images of their own size are trained") == warns);
  }
}

TEST_CASE("A run with ProgressiveResizing that is cut off and resumed ends with the weights of one that is not") {
  check_cut_and_resumed(
      [] {
        TrainerOptions with = tiny_image_options();
        with.algorithms = {ProgressiveResizing({.mode = ResizingMode::CROP, .size_increment = 1})};
        return with;
      },
      3);
}

TEST_CASE("ProgressiveResizing refuses inputs that are no images, and options that make no sense") {
  FakeRun run;
  ProgressiveResizing resizing;
  run.state.batch = {{"input", at::ones({2, 5})}, {"target", at::ones({2})}};
  CHECK_THROWS_WITH_AS(resizing.apply(Event::AFTER_DATALOADER, run.state, run.logger),
                       "ProgressiveResizing: needs images [N, C, H, W]; \"input\" is [2, 5]", ConfigError);
  CHECK_THROWS_WITH_AS(ProgressiveResizing({.initial_scale = 2}),
                       "ProgressiveResizing: initial_scale must be from 0 to 1, got 2", ConfigError);
  CHECK_THROWS_WITH_AS(ProgressiveResizing({.finetune_fraction = 0.6, .delay_fraction = 0.6}),
                       "ProgressiveResizing: delay_fraction + finetune_fraction must be at most 1, got 0.6 + 0.6",
                       ConfigError);
  CHECK_THROWS_AS(ProgressiveResizing({.size_increment = 0}), ConfigError);
}

}  // namespace
}  // namespace composer::test::progressive_resizing_test
