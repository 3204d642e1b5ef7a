// Crop, mirror, normalise and cutout of in_memory, against the plain definition pixel by pixel.
#include <map>
#include <optional>
#include <set>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/data/image_pass.h"
#include "tests/support/doctest.h"

namespace composer::augment_test {

using data::in_memory;
using data::InMemoryOptions;
using data::detail::Draw;
using data::detail::ImagePass;

namespace {

at::Tensor pixels(at::IntArrayRef shape) {
  return at::arange(c10::multiply_integers(shape)).mul(37).remainder(251).add(1).to(at::kByte).view(shape);
}

// One image [C, H, W] as doubles, by the definition.
at::Tensor expected(const at::Tensor& image, const Draw& d, const std::optional<data::Normalize>& normalize) {
  const std::int64_t channels = image.size(0), height = image.size(1), width = image.size(2);
  const at::Tensor in = image.to(at::kDouble).contiguous();
  at::Tensor out = at::zeros_like(in);
  const auto from = in.accessor<double, 3>();
  auto to = out.accessor<double, 3>();
  for (std::int64_t c = 0; c < channels; ++c)
    for (std::int64_t y = 0; y < height; ++y)
      for (std::int64_t x = 0; x < width; ++x) {
        const std::int64_t row = y + d.down, column = (d.flip ? width - 1 - x : x) + d.right;
        double value = row < 0 || row >= height || column < 0 || column >= width ? 0 : from[c][row][column];
        if (normalize) {
          const auto i = normalize->mean.size() == 1 ? 0 : static_cast<std::size_t>(c);
          value = (value / 255 - normalize->mean[i]) / normalize->stddev[i];
        }
        const bool out_of_it = y >= d.top && y < d.bottom && x >= d.left && x < d.end;
        to[c][y][x] = out_of_it ? 0 : value;
      }
  return out;
}

struct Case {
  at::ScalarType type;
  std::int64_t channels, height, width;
  std::optional<data::Normalize> normalize;
};

const data::Normalize kAlike{{0.286}, {0.353}}, kEach{{0.1, 0.2, 0.3}, {1, 0.5, 2}};
const std::vector<Case> kCases = {
    {at::kByte, 1, 28, 28, kAlike}, {at::kByte, 3, 9, 5, kEach}, {at::kByte, 3, 5, 16, kAlike},
    {at::kByte, 1, 3, 7, {}},       {at::kByte, 4, 6, 11, {}},   {at::kByte, 2, 4, 9, {}},
    {at::kFloat, 1, 8, 8, {}},      {at::kFloat, 3, 7, 6, {}},   {at::kDouble, 3, 5, 4, {}},
    {at::kByte, 5, 4, 3, kAlike},   {at::kByte, 3, 1, 1, kEach},
};

}  // namespace

TEST_CASE("Augmented images are what the definition says, in both memory formats and any type") {
  for (const Case& c : kCases)
    for (bool channels_last : {false, true})
      for (std::int64_t padding : {0, 2, 40})
        for (std::int64_t cutout : {0, 3}) {
          CAPTURE(c.channels);
          CAPTURE(c.width);
          CAPTURE(channels_last);
          CAPTURE(padding);
          CAPTURE(cutout);
          const std::int64_t n = 25;
          const at::Tensor x = pixels({n, c.channels, c.height, c.width}).to(c.type);
          const InMemoryOptions options{.batch_size = 7,
                                        .normalize = c.normalize,
                                        .flip = true,
                                        .crop_padding = padding,
                                        .cutout = cutout,
                                        .channels_last = channels_last};
          const ImagePass pass(options, x);
          const auto loader = in_memory({{"input", x}, {"target", at::arange(n)}}, options);
          loader->seek(3, 0);
          while (const auto batch = loader->next()) {
            const at::Tensor& images = batch->at("input");
            CHECK((images.scalar_type() == (c.normalize ? at::kFloat : c.type)));
            CHECK((images.suggest_memory_format() == at::MemoryFormat::ChannelsLast) == channels_last);
            for (std::int64_t i = 0; i < images.size(0); ++i) {
              const std::int64_t sample = batch->at("target")[i].item<std::int64_t>();
              CHECK(at::allclose(images[i].to(at::kDouble), expected(x[sample], pass.draw(17, 3, sample), c.normalize),
                                 1e-6, 1e-6));
            }
          }
        }
}

TEST_CASE("Data on a device is augmented to the same bits as data on the host") {
  for (const Case& c : kCases)
    for (bool channels_last : {false, true})
      for (auto [padding, cutout, flip] : {std::tuple{2, 3, true}, {0, 0, true}, {1, 0, false}, {0, 3, false}}) {
        const std::int64_t n = 20;
        at::Tensor x = pixels({n, c.channels, c.height, c.width}).to(c.type);
        if (channels_last) {
          if (c.channels == 1) continue;
          x = x.contiguous(at::MemoryFormat::ChannelsLast);
        }
        const InMemoryOptions options{.batch_size = n,
                                      .shuffle = false,
                                      .normalize = c.normalize,
                                      .flip = flip,
                                      .crop_padding = padding,
                                      .cutout = cutout};
        const ImagePass pass(options, x);
        std::vector<std::int64_t> samples(static_cast<std::size_t>(n));
        for (std::int64_t i = 0; i < n; ++i) samples[static_cast<std::size_t>(i)] = i;
        const auto loader = in_memory({{"input", x}, {"target", at::arange(n)}}, options);
        loader->seek(2, 0);
        const at::Tensor there = pass.apply(x, pass.table(17, 2, samples)), here = loader->next()->at("input");
        CHECK(there.equal(here));
        CHECK(there.strides() == here.strides());
      }
}

TEST_CASE("Rows of any width are converted to the bits of one multiplication and one addition") {
  std::vector<std::uint8_t> bytes(3 * 80);
  std::vector<float> scales, shifts;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::uint8_t>(i * 91);
    scales.push_back(0.01F + 0.001F * static_cast<float>(i % 80));
    shifts.push_back(0.3F - 0.02F * static_cast<float>(i % 80));
  }
  for (std::size_t width = 1; width <= 80; ++width) {
    std::vector<float> alike(3 * width + 1, -1), each(3 * width + 1, -1);
    const auto count = static_cast<std::int64_t>(width);
    data::detail::pixels_to_float(bytes.data(), alike.data(), 3 * count, scales[5], shifts[5]);
    data::detail::pixels_to_float(bytes.data(), each.data(), 3, count, scales.data(), shifts.data());
    for (std::size_t i = 0; i < 3 * width; ++i) {
      const float value = bytes[i];
      CHECK(alike[i] == value * scales[5] + shifts[5]);
      CHECK(each[i] == value * scales[i % width] + shifts[i % width]);
    }
    CHECK(alike.back() == -1);
    CHECK(each.back() == -1);
  }
}

TEST_CASE("Each place of the window and of the square is about equally likely") {
  const at::Tensor x = at::zeros({1, 1, 10, 8}, at::kByte);
  const ImagePass pass({.batch_size = 1, .crop_padding = 1, .cutout = 3}, x);
  std::map<std::pair<std::int64_t, std::int64_t>, int> windows, squares;
  for (std::int64_t sample = 0; sample < 9000; ++sample) {
    const Draw draw = pass.draw(17, 0, sample);
    ++windows[{draw.down, draw.right}];
    ++squares[{draw.top + draw.bottom, draw.left + draw.end}];  // tells the centre, also where the edge cuts it off
  }
  CHECK(windows.size() == 9);
  for (const auto& [place, count] : windows) CHECK(count > 880);
  CHECK(squares.size() == 80);
  for (const auto& [place, count] : squares) CHECK(count > 70);
}

TEST_CASE("What is drawn is pinned, so that a run can be resumed by a newer version") {
  const ImagePass pass({.batch_size = 1, .flip = true, .crop_padding = 4, .cutout = 8},
                       at::zeros({1, 1, 28, 28}, at::kByte));
  const at::Tensor table = pass.table(17, 1, {0, 7, 59999});
  const std::vector<std::int64_t> pinned = {0, 4,  2,  19, 27, 17, 25,  // flip, down, right, top, bottom, left, end
                                            0, 4,  2,  0,  5,  20, 28,  //
                                            0, -2, -1, 0,  8,  1,  9};
  CHECK(table.equal(at::tensor(pinned).view({3, 7})));
}

TEST_CASE("What is drawn differs between epochs, seeds and samples") {
  const at::Tensor x = at::zeros({1, 1, 28, 28}, at::kByte);
  std::set<std::vector<std::int64_t>> all;
  for (std::uint64_t seed : {17, 18})
    for (std::int64_t epoch : {0, 1}) {
      const ImagePass pass({.batch_size = 1, .flip = true, .crop_padding = 4, .cutout = 8}, x);
      const at::Tensor table = pass.table(seed, epoch, {0, 1, 2, 3});
      all.insert({table.const_data_ptr<std::int64_t>(), table.const_data_ptr<std::int64_t>() + table.numel()});
    }
  CHECK(all.size() == 4);
}

TEST_CASE("Crops and cutouts that do not fit are refused, with the value") {
  const Batch images{{"input", pixels({4, 3, 2, 2})}, {"target", at::arange(4)}};
  const auto refuse = [](Batch data, InMemoryOptions options, const char* text) {
    CHECK_THROWS_WITH_AS(in_memory(std::move(data), std::move(options)), doctest::Contains(text), ConfigError);
  };
  refuse(images, {.batch_size = 2, .crop_padding = -1}, "crop_padding must be >= 0, got -1");
  refuse(images, {.batch_size = 2, .cutout = -2}, "cutout must be >= 0, got -2");
  refuse({{"input", at::zeros({4, 3})}}, {.batch_size = 2, .cutout = 2}, "need images [N, C, H, W], got [4, 3]");
  refuse({{"x", at::zeros({4, 3})}}, {.batch_size = 2, .crop_padding = 2}, "need a tensor called \"input\"");
}

}  // namespace composer::augment_test
