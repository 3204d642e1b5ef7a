#include "composer/callbacks/image_visualizer.h"

#include <fstream>
#include <iterator>
#include <png.h>

#include <torch/nn/modules/conv.h>

#include "composer/callbacks/image_grid.h"
#include "composer/core/error.h"
#include "tests/battery/host_reads.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::test::image_visualizer_test {
namespace {

namespace fs = std::filesystem;
using callbacks::ImageMode, callbacks::ImageVisualizer, callbacks::ImageVisualizerOptions;

struct ImageLog final : LoggerDestination {
  void log_images(std::string_view key, const LogImages& images, std::int64_t step, const State&) override {
    records.push_back({std::string(key), step, images});
  }
  struct Record {
    std::string key;
    std::int64_t step;
    LogImages images;
  };
  std::vector<Record> records;
};

// Three classes for each pixel of [N, C, H, W]; the loss is that of the first.
struct Pixelwise final : Model {
  explicit Pixelwise(std::int64_t channels) : conv(torch::nn::Conv2dOptions(channels, 3, 1)) {
    register_module("conv", conv);
    const at::NoGradGuard no_grad;
    conv->weight.zero_();
    conv->bias.copy_(at::tensor({0.0F, 2.0F, 1.0F}));
  }
  Outputs forward(const Batch& batch) override { return conv(batch.at("input").to(at::kFloat)); }
  Losses loss(const Outputs& outputs, const Batch&) override { return outputs.only().square().mean(); }
  torch::nn::Conv2d conv;
};

// 16 images of 1 x 2 x 3 pixels, from 0 to 0.95.
at::Tensor some_images() { return at::arange(16 * 6, at::kFloat).view({16, 1, 2, 3}) / 100; }

std::shared_ptr<ImageLog> fit(const ImageVisualizerOptions& options, const Batch& samples,
                              const std::function<void(TrainerOptions&)>& change = {}) {
  const auto log = std::make_shared<ImageLog>();
  TrainerOptions with = tiny_options();
  with.model = std::make_shared<Pixelwise>(options.channels_last ? samples.at("input").size(-1) : 1);
  with.train_dataloader = data::in_memory(samples, {.batch_size = 4, .shuffle = false});
  with.callbacks.add(ImageVisualizer(options));
  with.loggers.add(log);
  if (change) change(with);
  Trainer(std::move(with)).fit();
  return log;
}

// The first images that are shown of these inputs.
LogImages shown(const ImageVisualizerOptions& options, const at::Tensor& inputs) {
  ImageLog log;
  State state;
  Logger logger(state, {&log});
  ImageVisualizer visualizer(options);
  state.batch = {{"input", inputs}};
  visualizer.init(state, logger);
  visualizer.batch_start(state, logger);
  visualizer.before_forward(state, logger);
  REQUIRE(log.records.size() == 1);
  return log.records[0].images;
}

struct Picture {
  std::int64_t width, height;
  at::Tensor pixels;  // [H, W, 3]
};

Picture read_png(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE(file);
  const std::string bytes(std::istreambuf_iterator<char>(file), {});
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  REQUIRE(png_image_begin_read_from_memory(&image, bytes.data(), bytes.size()) != 0);
  image.format = PNG_FORMAT_RGB;
  at::Tensor pixels = at::empty({image.height, image.width, 3}, at::kByte);
  REQUIRE(png_image_finish_read(&image, nullptr, pixels.mutable_data_ptr(), 0, nullptr) != 0);
  return {image.width, image.height, pixels};
}

TEST_CASE("ImageVisualizer logs the first microbatch of batches that are due, and of each evaluation") {
  const auto log = fit({.interval = "3ba", .num_images = 3}, {{"input", some_images()}}, [](TrainerOptions& options) {
    options.max_duration = "2ep";
    options.device_train_microbatch_size = 2;
    options.eval_dataloader =
        Evaluators{{.label = "eval", .dataloader = data::in_memory({{"input", some_images()}}, {.batch_size = 8})},
                   {.label = "more", .dataloader = data::in_memory({{"input", some_images()}}, {.batch_size = 2})}};
  });
  std::vector<std::string> seen;
  for (const auto& [key, step, images] : log->records) seen.push_back(join(key, " ", step, " ", images.images.size(0)));
  CHECK(seen == std::vector<std::string>{"Images/Train 0 2", "Images/Train 3 2", "Images/Eval 4 3",
                                         "Images/Eval/more 4 2", "Images/Train 6 2", "Images/Eval 8 3",
                                         "Images/Eval/more 8 2"});
  REQUIRE(log->records.size() == 7);
  CHECK(log->records[1].images.images.equal(some_images().slice(0, 12, 14)));
  CHECK(log->records[2].images.masks.empty());
}

TEST_CASE("ImageVisualizer counts an interval in epochs from their first batch") {
  const auto log = fit({.interval = "2ep"}, {{"input", some_images()}},
                       [](TrainerOptions& options) { options.max_duration = "5ep"; });
  std::vector<std::int64_t> steps;
  for (const auto& record : log->records) steps.push_back(record.step);
  CHECK(steps == std::vector<std::int64_t>{0, 8, 16});
}

TEST_CASE("ImageVisualizer keeps what it has logged when the batch is changed later") {
  at::Tensor inputs = some_images();
  const LogImages images = shown({}, inputs);
  inputs.zero_();
  CHECK(images.images.equal(some_images().slice(0, 0, 8)));
}

TEST_CASE("ImageVisualizer undoes a normalization, with one number or one for each channel") {
  const at::Tensor pixels = at::rand({2, 3, 4, 4});
  const at::Tensor mean = at::tensor({0.1, 0.2, 0.3}, at::kFloat), stddev = at::tensor({0.5, 0.6, 0.7}, at::kFloat);
  const at::Tensor inputs = (pixels - mean.view({3, 1, 1})) / stddev.view({3, 1, 1});
  CHECK(at::allclose(shown({.mean = {0.1, 0.2, 0.3}, .stddev = {0.5, 0.6, 0.7}}, inputs).images, pixels, 1e-5, 1e-6));
  const ImageVisualizerOptions last{.channels_last = true, .mean = {0.1, 0.2, 0.3}, .stddev = {0.5, 0.6, 0.7}};
  const LogImages images = shown(last, inputs.movedim(1, 3));
  CHECK(images.channels_last);
  CHECK(at::allclose(images.images, pixels.movedim(1, 3), 1e-5, 1e-6));
  CHECK(at::allclose(shown({.mean = {0.5}, .stddev = {0.25}}, (pixels - 0.5) / 0.25).images, pixels, 1e-5, 1e-6));
  CHECK_THROWS_WITH_AS(shown({.mean = {0.1, 0.2}}, inputs), doctest::Contains("mean has 2 values"), DataError);
}

TEST_CASE("ImageVisualizer rescales each image by itself") {
  const at::Tensor inputs = at::tensor({-1.0F, 3.0F, 10.0F, 10.0F}).view({2, 1, 1, 2});
  CHECK(shown({.rescale = true}, inputs).images.equal(at::tensor({0.0F, 1.0F, 0.0F, 0.0F}).view({2, 1, 1, 2})));
}

TEST_CASE("ImageVisualizer says once that values would be shown as black or white, unless it brings them to 0 to 1") {
  const at::Tensor pixels = at::linspace(0, 1, 2 * 3 * 4 * 4).view({2, 3, 4, 4});
  const at::Tensor normalized = (pixels - 0.5) / 0.25;
  struct Row {
    ImageVisualizerOptions options;
    at::Tensor inputs;
    std::string warning;
  };
  const std::string undo = "set mean and stddev to those with which the inputs were normalized, or rescale";
  for (const auto& [options, inputs, warning] :
       std::vector<Row>{{{}, pixels, ""},
                        {{}, pixels * 1.1 - 0.05, ""},  // as interpolation makes
                        {{}, normalized, "ImageVisualizer: Images/Train have values from -2 to 2, of which"},
                        {{}, normalized.to(at::kHalf), undo},
                        {{}, pixels * 255, "from 0 to 255"},
                        {{}, (pixels * 255).to(at::kByte), ""},
                        {{.rescale = true}, normalized, ""},
                        {{.mean = {0.5}, .stddev = {0.25}}, normalized, ""},
                        {{.mean = {0.5}, .stddev = {0.5}}, normalized, "from -0.5 to 1.5"},
                        {{.mean = {0.5}, .stddev = {0.5}}, normalized, "check mean and stddev, or set rescale"}}) {
    CAPTURE(warning);
    const Warnings warnings;
    ImageLog log;
    State state;
    Logger logger(state, {&log});
    ImageVisualizer visualizer(options);
    state.batch = {{"input", inputs}};
    visualizer.init(state, logger);
    for (int i = 0; i < 3; ++i) {
      visualizer.batch_start(state, logger);
      visualizer.before_forward(state, logger);
    }
    visualizer.close(state, logger);
    CHECK(warnings.texts.size() == (warning.empty() ? 0 : 1));
    if (!warning.empty()) CHECK(warnings.say(warning));
  }
}

TEST_CASE("ImageVisualizer shows images without channels, of bools and of whole numbers") {
  const at::Tensor numbers = at::tensor({-5, 7, 255, 300}, at::kLong).view({1, 2, 2});
  const at::Tensor seven = at::tensor({0, 7, 255, 255}, at::kByte).view({1, 1, 2, 2});
  CHECK(shown({}, numbers).images.equal(seven));
  CHECK(shown({.channels_last = true}, numbers).images.equal(seven.view({1, 2, 2, 1})));
  CHECK(shown({}, numbers > 7).images.equal(at::tensor({0.0F, 0.0F, 1.0F, 1.0F}).view({1, 1, 2, 2})));
}

TEST_CASE("ImageVisualizer passes over inputs that are not images, and says so once") {
  for (const auto& shape : std::vector<std::vector<std::int64_t>>{{4, 5}, {4, 1, 1}, {4, 1, 1, 1}, {2, 3, 4, 5, 6}}) {
    ImageLog log;
    State state;
    Logger logger(state, {&log});
    ImageVisualizer visualizer;
    state.batch = {{"input", at::zeros(shape)}};
    const Warnings warnings;
    for (int i = 0; i < 2; ++i) {
      visualizer.batch_start(state, logger);
      visualizer.before_forward(state, logger);
    }
    CHECK(log.records.empty());
    CHECK(warnings.texts.size() == 1);
    CHECK(warnings.say("which is not images"));
  }
}

TEST_CASE("ImageVisualizer logs the predicted and the true class of each pixel") {
  at::Tensor truth = at::arange(16 * 6, at::kLong).remainder(3).view({16, 2, 3});
  truth[0][0][0] = -100;
  at::Tensor expected = truth.slice(0, 0, 2).clone();
  expected[0][0][0] = 3;  // after the last class
  const ImageVisualizerOptions options{.mode = ImageMode::SEGMENTATION, .num_images = 2};
  for (const bool one_hot : {false, true}) {
    CAPTURE(one_hot);
    const at::Tensor target = one_hot ? at::one_hot(truth.clamp_min(0), 3).movedim(3, 1).to(at::kFloat) : truth;
    if (one_hot) expected[0][0][0] = 0;
    const auto log = fit(options, {{"input", some_images()}, {"target", target}}, [&](TrainerOptions& with) {
      with.eval_dataloader =
          data::in_memory({{"input", some_images()}, {"target", target}}, {.batch_size = 4, .shuffle = false});
    });
    REQUIRE(log->records.size() == 2);
    CHECK(log->records[1].key == "Images/Eval");
    for (const auto& record : log->records) {
      const std::vector<LogMask>& masks = record.images.masks;
      REQUIRE(masks.size() == 2);
      CHECK(masks[0].name == "prediction");
      CHECK(masks[1].name == "ground_truth");
      CHECK(masks[1].classes.equal(expected));
      CHECK(masks[0].classes.sizes() == expected.sizes());
    }
    CHECK(log->records[0].images.masks[0].classes.eq(1).all().item<bool>());  // the greatest bias
  }
}

TEST_CASE("ImageVisualizer rejects outputs that are no segmentation of the images") {
  const ImageVisualizerOptions options{.mode = ImageMode::SEGMENTATION};
  CHECK_THROWS_WITH_AS(fit(options, {{"input", some_images()}, {"target", at::zeros({16}, at::kLong)}}),
                       doctest::Contains("segmentation needs targets of shape"), RunError);
  CHECK_THROWS_WITH_AS(fit(options, {{"input", some_images()}, {"target", at::zeros({16, 3, 3}, at::kLong)}}),
                       doctest::Contains("ground_truth"), RunError);
}

TEST_CASE("ImageVisualizer writes grids of images as PNG files") {
  const Folder folder;
  const ImageVisualizerOptions options{.num_images = 3, .folder = (folder / "{run_name}").string()};
  fit(options, {{"input", some_images()}}, [](TrainerOptions& with) {
    with.eval_dataloader = data::in_memory({{"input", some_images()}}, {.batch_size = 4, .shuffle = false});
  });
  const Picture train = read_png(folder / "tiny/train-ba0.png");
  CHECK(train.width == 2 * 3 + 2);
  CHECK(train.height == 2 * 2 + 2);
  const auto gray = [](const at::Tensor& image) { return (image * 255).round().to(at::kByte); };
  const at::Tensor red = train.pixels.select(2, 0);
  CHECK(red.slice(0, 0, 2).slice(1, 0, 3).equal(gray(some_images()[0][0])));
  CHECK(red.slice(0, 0, 2).slice(1, 5, 8).equal(gray(some_images()[1][0])));
  CHECK(red.slice(0, 4, 6).slice(1, 0, 3).equal(gray(some_images()[2][0])));
  CHECK(red.slice(0, 2, 4).eq(0).all().item<bool>());
  CHECK(red.slice(1, 3, 5).eq(0).all().item<bool>());
  CHECK(red.slice(0, 4, 6).slice(1, 5, 8).eq(0).all().item<bool>());
  CHECK(read_png(folder / "tiny/eval-ba4.png").pixels.equal(train.pixels));
}

TEST_CASE("A grid has the masks of each image to its right") {
  const Folder folder;
  const at::Tensor truth = at::arange(16 * 6, at::kLong).remainder(3).view({16, 2, 3});
  fit({.mode = ImageMode::SEGMENTATION, .num_images = 1, .folder = folder.path().string()},
      {{"input", some_images()}, {"target", truth}});
  const Picture picture = read_png(folder / "train-ba0.png");
  CHECK(picture.width == 9);
  CHECK(picture.height == 2);
  const auto color = [&](std::int64_t row, std::int64_t column) {
    const at::Tensor pixel = picture.pixels[row][column];
    return std::vector{pixel[0].item<int>(), pixel[1].item<int>(), pixel[2].item<int>()};
  };
  CHECK(color(0, 1) == std::vector{3, 3, 3});      // 0.01
  CHECK(color(0, 3) == std::vector{230, 25, 75});  // class 1 is predicted everywhere
  CHECK(color(1, 5) == std::vector{230, 25, 75});
  CHECK(color(0, 6) == std::vector{0, 0, 0});
  CHECK(color(0, 7) == std::vector{230, 25, 75});
  CHECK(color(0, 8) == std::vector{60, 180, 75});
}

TEST_CASE("What is between images and has no image is opaque and black in a grid of images with transparency") {
  const at::Tensor grid = callbacks::image_grid({.images = at::zeros({3, 4, 2, 2}, at::kByte)});
  REQUIRE(grid.sizes() == at::IntArrayRef({6, 6, 4}));
  CHECK(grid[5][5].equal(at::tensor({0, 0, 0, 255}, at::kByte)));
  CHECK(grid[0][2].equal(at::tensor({0, 0, 0, 255}, at::kByte)));
  CHECK(grid[0][0].equal(at::zeros({4}, at::kByte)));
}

TEST_CASE("A PNG file that cannot be written is a warning, and training goes on") {
  const Folder folder;
  std::ofstream(folder / "file") << "in the way";
  const Warnings warnings;
  fit({.folder = (folder / "file").string()}, {{"input", some_images()}});
  CHECK(warnings.say("train-ba0.png was not written"));
}

TEST_CASE("ImageVisualizer without a folder reads no tensor on the host") {
  const at::Tensor truth = at::arange(16 * 6, at::kLong).remainder(3).view({16, 2, 3});
  const auto run = [&](ImageVisualizerOptions options) {
    const auto reads = std::make_shared<HostReads>();
    options.rescale = true;
    fit(options, {{"input", some_images()}, {"target", truth}},
        [&](TrainerOptions& with) { with.callbacks.add(reads); });
    CHECK(reads->batches() == 4);
    return reads->count();
  };
  CHECK(run({.interval = "1ba"}) == 0);
  CHECK(run({.interval = "1ba", .mode = ImageMode::SEGMENTATION}) == 0);
}

TEST_CASE("ImageVisualizer rejects a spread of zero or less") {
  CHECK_THROWS_WITH_AS(ImageVisualizer({.stddev = {0.5, 0}}), "ImageVisualizer: stddev must be > 0, got 0.5, 0",
                       ConfigError);
}

}  // namespace
}  // namespace composer::test::image_visualizer_test
