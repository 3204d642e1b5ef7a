#include "composer/core/logger.h"

#include <cmath>
#include <fstream>
#include <functional>
#include <limits>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/core/state.h"
#include "tests/battery/host_reads.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"

namespace composer::logger_test {
namespace {

// Writes down what it is given.
struct Destination final : LoggerDestination {
  void log_images(std::string_view key, const LogImages& images, std::int64_t step, const State&) override {
    calls.push_back(join("images ", key, ' ', images.images.sizes(), ' ', step));
  }
  void log_table(std::string_view key, const LogTable& table, std::int64_t step, const State&) override {
    calls.push_back(join("table ", key, ' ', table.columns.size(), 'x', table.rows.size(), ' ', step));
  }
  void log_histogram(std::string_view key, const LogHistogram& histogram, std::int64_t step, const State&) override {
    calls.push_back(join("histogram ", key, ' ', histogram.counts.numel(), ' ', step));
  }
  void upload_file(const LogFile& file, const State&) override { calls.push_back(join("file ", file.name)); }
  std::vector<std::string> calls;
};

struct Logged {
  State state;
  Destination first, second;
  Logger logger{state, {&first, &second}};
};

TEST_CASE("Logger hands images, tables, histograms and files to every destination, at the step of training") {
  const test::Folder folder;
  std::ofstream(folder / "a.svg") << "x";
  Logged logged;
  logged.state.run_name = std::string("r");
  logged.state.timestamp = Timestamp().to_next_batch(1, 0, {}).to_next_batch(1, 0, {});
  logged.logger.log_images("i", {.images = at::zeros({3, 4, 5})});
  logged.logger.log_table("t", {{"a", "b"}, {{1.0, std::string("x")}}}, 7);
  logged.logger.log_histogram("h", LogHistogram::of(at::ones({3}), 5));
  logged.logger.upload_file({.path = folder / "a.svg", .name = "{run_name}/{batch:03}.svg"});
  CHECK(logged.first.calls ==
        std::vector<std::string>{"images i [3, 4, 5] 2", "table t 2x1 7", "histogram h 5 2", "file r/002.svg"});
  CHECK(logged.second.calls == logged.first.calls);
}

TEST_CASE("Logger rejects an empty key") {
  Logged logged;
  CHECK_THROWS_WITH_AS(logged.logger.log_metrics({{"a", 1.0}, {"", 1.0}}), "Logger: a key must not be empty",
                       DataError);
  CHECK_THROWS_WITH_AS(logged.logger.log_hyperparameters({{"", 1.0}}), "Logger: a key must not be empty", DataError);
  CHECK(logged.first.calls.empty());
}

TEST_CASE("A destination that implements none of them ignores images, tables, histograms and files") {
  const State state;
  LoggerDestination destination;
  CHECK_NOTHROW(destination.log_images("i", {}, 0, state));
  CHECK_NOTHROW(destination.log_table("t", {}, 0, state));
  CHECK_NOTHROW(destination.log_histogram("h", {}, 0, state));
  CHECK_NOTHROW(destination.upload_file({}, state));
}

TEST_CASE("Logger accepts every documented shape of images") {
  Logged logged;
  for (const auto& [sizes, last] : std::vector<std::pair<std::vector<std::int64_t>, bool>>{{{2, 1, 4, 5}, false},
                                                                                           {{2, 3, 4, 5}, false},
                                                                                           {{2, 4, 4, 5}, false},
                                                                                           {{3, 4, 5}, false},
                                                                                           {{4, 5}, false},
                                                                                           {{4, 5}, true},
                                                                                           {{2, 4, 5, 3}, true},
                                                                                           {{4, 5, 1}, true}}) {
    CAPTURE(sizes);
    for (const at::ScalarType type : {at::kByte, at::kFloat, at::kHalf, at::kBFloat16, at::kDouble})
      CHECK_NOTHROW(logged.logger.log_images("i", {.images = at::zeros(sizes, type), .channels_last = last}));
  }
  CHECK_NOTHROW(logged.logger.log_images(
      "i", {.images = at::zeros({2, 3, 4, 5}),
            .masks = {{"truth", at::zeros({2, 4, 5}, at::kLong)}, {"guess", at::zeros({2, 4, 5}, at::kBool)}},
            .class_labels = {{0, "sky"}}}));
}

TEST_CASE("Logger rejects bad arguments where they are logged, before any destination gets them") {
  const test::Folder folder;
  std::ofstream(folder / "a") << "x";
  const std::string file = folder / "a";
  const at::Tensor image = at::zeros({2, 3, 4, 5}), mask = at::zeros({2, 4, 5}, at::kLong);
  struct Row {
    const char* what;
    std::function<void(Logger&)> log;
  };
  const auto images = [](const char* what, LogImages value) {
    return Row{what, [value](Logger& logger) { logger.log_images("key", value); }};
  };
  const auto table = [](const char* what, LogTable value) {
    return Row{what, [value](Logger& logger) { logger.log_table("key", value); }};
  };
  const auto histogram = [](const char* what, LogHistogram value) {
    return Row{what, [value](Logger& logger) { logger.log_histogram("key", value); }};
  };
  const auto upload = [](const char* what, LogFile value) {
    return Row{what, [value](Logger& logger) { logger.upload_file(value); }};
  };
  for (const Row& row :
       {images("key: images is an undefined tensor", {}),
        images("must be uint8 or floating-point from 0 to 1, got type Long", {.images = image.to(at::kLong)}),
        images("must be of real numbers", {.images = image.to(at::kComplexFloat)}),
        images("must be a dense tensor", {.images = image.to_sparse()}),
        images("[N, C, H, W], [C, H, W] or [H, W], got [5]", {.images = at::zeros({5})}),
        images("got [1, 1, 3, 4, 5]", {.images = at::zeros({1, 1, 3, 4, 5})}),
        images("images are empty, of shape [0, 3, 4, 5]", {.images = at::zeros({0, 3, 4, 5})}),
        images("1, 3 or 4 channels, got 2 in dimension 1", {.images = at::zeros({7, 2, 4, 5})}),
        images("got 5 in dimension 3 of shape [2, 3, 4, 5] (channels_last)", {.images = image, .channels_last = true}),
        images("two masks are called \"m\"", {.images = image, .masks = {{"m", mask}, {"m", mask}}}),
        images("mask \"m\" must be of integers", {.images = image, .masks = {{"m", mask.to(at::kFloat)}}}),
        images("must be of shape [2, 4, 5], got [4, 5]", {.images = image, .masks = {{"m", mask[0]}}}),
        images("mask \"m\" is an undefined tensor", {.images = image, .masks = {{"m", {}}}}),
        table("at least one column", {}),
        table("two columns of the table have the same name", {{"a", "a"}, {}}),
        table("row 1 of the table has 1 values, and there are 2 columns", {{"a", "b"}, {{1.0, 2.0}, {1.0}}}),
        table("row 0, column \"a\" must be one number, got a tensor of shape [3]", {{"a"}, {{at::zeros({3})}}}),
        table("row 0, column \"a\" is an undefined tensor", {{"a"}, {{at::Tensor()}}}),
        histogram("counts is an undefined tensor", {}),
        histogram("counts must be of shape [bins], got [0]", {at::zeros({0}), at::zeros({1})}),
        histogram("edges must be of shape [3] for 2 counts, got [2]", {at::zeros({2}), at::zeros({2})}),
        histogram("edges must be floating-point, got type Long", {at::zeros({2}), at::zeros({3}, at::kLong)}),
        upload("/nowhere is not a file", {.path = "/nowhere", .name = "a"}),
        upload("the name of", {.path = file, .name = ""}),
        Row{"a key must not be empty", [&](Logger& logger) { logger.log_images("", {.images = image}); }}}) {
    CAPTURE(row.what);
    Logged logged;
    CHECK_THROWS_WITH_AS(row.log(logged.logger), doctest::Contains(row.what), DataError);
    CHECK(logged.first.calls.empty());
  }
  Logged logged;
  CHECK_THROWS_WITH_AS(logged.logger.upload_file({.path = file, .name = "{batch"}),
                       "upload_file: {batch has a { without a }", ConfigError);
  CHECK_THROWS_WITH_AS(logged.logger.upload_file({.path = file, .name = "{batch:q}"}),
                       doctest::Contains("upload_file: {batch:q}: the format :q is unknown"), ConfigError);
}

std::vector<double> numbers(const at::Tensor& tensor) {
  const at::Tensor on_host = tensor.to(at::kDouble).contiguous();
  return {on_host.const_data_ptr<double>(), on_host.const_data_ptr<double>() + on_host.numel()};
}

TEST_CASE("A histogram counts every finite value once, in the interval that contains it") {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kMost = std::numeric_limits<double>::max();
  struct Row {
    std::vector<double> values;
    std::int64_t bins;
    std::vector<double> counts, edges;
  };
  for (const auto& [values, bins, counts, edges] :
       {Row{{0, 1, 2, 3, 4}, 2, {2, 3}, {0, 2, 4}}, Row{{-1, kNaN, 1, kInfinity, -kInfinity}, 2, {1, 1}, {-1, 0, 1}},
        Row{{3, 3, 3}, 1, {3}, {2.5, 3.5}}, Row{{kNaN}, 2, {0, 0}, {-0.5, 0, 0.5}},
        Row{{-kMost, kMost, 0}, 2, {1, 2}, {-kMost, 0, kMost}}}) {
    CAPTURE(values);
    const LogHistogram histogram = LogHistogram::of(at::tensor(values, at::kDouble), bins);
    CHECK(numbers(histogram.counts) == counts);
    CHECK(numbers(histogram.edges) == edges);
  }
  for (const auto& close : {std::vector<double>{1e16, 1e16 + 2}, {0, 5e-324}, {-1e308, -1e308 * (1 - 1e-15)}})
    CHECK(LogHistogram::of(at::tensor(close, at::kDouble), 64).counts.sum().item<std::int64_t>() == 2);
  CHECK(numbers(LogHistogram::of(at::tensor({1, 0, 1}).to(at::kBool), 2).counts) == std::vector<double>{1, 2});
  const LogHistogram ints = LogHistogram::of(at::arange(100, at::kInt).view({10, 10}).t(), 10);
  CHECK(ints.counts.sum().item<std::int64_t>() == 100);
}

TEST_CASE("A histogram keeps nothing of the tensor and needs no gradient") {
  const at::Tensor weights = at::linspace(0, 1, 10).requires_grad_();
  const LogHistogram histogram = LogHistogram::of(weights, 2);
  const auto before = numbers(histogram.counts);
  weights.detach().fill_(7);
  CHECK(numbers(histogram.counts) == before);
  CHECK_FALSE(histogram.edges.requires_grad());
}

TEST_CASE("A histogram of given counts and edges rejects those that do not fit") {
  CHECK(numbers(LogHistogram::of({1, 2}, {0, 1, 2}).counts) == std::vector<double>{1, 2});
  CHECK_THROWS_AS(LogHistogram::of({1, 2}, {0, 1}), DataError);
  CHECK_THROWS_AS(LogHistogram::of({1, -2}, {0, 1, 2}), DataError);
  CHECK_THROWS_AS(LogHistogram::of({1, 2}, {0, 2, 1}), DataError);
  CHECK_THROWS_AS(LogHistogram::of(at::zeros({0})), DataError);
  CHECK_THROWS_AS(LogHistogram::of(at::ones({2}, at::kComplexFloat)), DataError);
  CHECK_THROWS_AS(LogHistogram::of(at::ones({2}), 0), DataError);
}

TEST_CASE("Logging images, tables and histograms reads no tensor on the host") {
  Logged logged;
  test::HostReads reads;
  reads.batch_start(logged.state, logged.logger);
  logged.logger.log_images("i", {.images = at::rand({2, 3, 4, 5}), .masks = {{"m", at::zeros({2, 4, 5}, at::kLong)}}});
  logged.logger.log_table("t", {{"a"}, {{at::ones({})}}});
  logged.logger.log_histogram("h", LogHistogram::of(at::rand({100})));
  reads.batch_checkpoint(logged.state, logged.logger);
  CHECK(reads.count() == 0);
}

}  // namespace
}  // namespace composer::logger_test
