#include "composer/loggers/in_memory_logger.h"

#include <cmath>
#include <limits>
#include <malloc.h>

#include <ATen/ATen.h>
#include <ATen/record_function.h>

#include "composer/core/error.h"
#include "composer/core/state.h"
#include "tests/support/doctest.h"

namespace composer::loggers::in_memory_logger_test {
namespace {

using namespace std::chrono_literals;

struct Run {
  State state;
  InMemoryLogger memory;
  Logger logger{state, {&memory}};

  void next_batch(std::int64_t samples = 4, Seconds duration = 0.5s) {
    state.timestamp = state.timestamp.to_next_batch(samples, 0, duration);
  }
  std::vector<double> numbers(std::string_view key) {
    std::vector<double> numbers;
    for (const LoggedPoint& point : memory.get_timeseries(key)) numbers.push_back(point.number());
    return numbers;
  }
};

// What the trainer logs in a step.
void log_step(Run& run, const at::Tensor& loss, const at::Tensor& accuracy) {
  const Timestamp& now = run.state.timestamp;
  run.logger.log_metrics({{"time/batch", now.batch},
                          {"time/sample", now.sample},
                          {"time/batch_in_epoch", now.batch_in_epoch},
                          {"time/sample_in_epoch", now.sample_in_epoch}});
  run.logger.log_metrics({{"trainer/device_train_microbatch_size", std::int64_t{4}}});
  run.logger.log_metrics({{"loss/train/total", loss}});
  run.logger.log_metrics({{"metrics/train/MulticlassAccuracy", accuracy}});
}

TEST_CASE("InMemoryLogger keeps each metric with the time at which it was logged") {
  Run run;
  run.logger.log_metrics({{"a", 0.5}, {"b", std::int64_t{7}}});
  run.next_batch();
  run.logger.log_metrics({{"a", 0.1}});
  run.next_batch(3, 0.25s);
  const Timestamp third = run.state.timestamp;
  run.logger.log_metrics({{"a", at::tensor(2.5F)}});

  const auto points = run.memory.get_timeseries("a");
  REQUIRE(points.size() == 3);
  CHECK(points[0].timestamp == Timestamp{});
  CHECK(points[1].timestamp == Timestamp{}.to_next_batch(4, 0, 0.5s));
  CHECK(points[2].timestamp == third);
  CHECK(run.numbers("a") == std::vector{0.5, 0.1, 2.5});
  CHECK(run.memory.most_recent("a").timestamp == third);
  CHECK(run.memory.most_recent("b").timestamp == Timestamp{});
  CHECK(std::get<std::int64_t>(run.memory.most_recent("b").value) == 7);
  CHECK(run.memory.keys() == std::vector<std::string>{"a", "b"});
}

// Hands on what it is given, by the methods for one kind each, as a filter does.
struct HandsOn final : LoggerDestination {
  explicit HandsOn(LoggerDestination& to) : to(to) {}
  void log_metrics(std::span<const LogEntry> metrics, std::int64_t step, const State& state) override {
    to.log_metrics(metrics, step, state);
  }
  void log_hyperparameters(std::span<const LogEntry> entries, const State& state) override {
    to.log_hyperparameters(entries, state);
  }
  void log_images(std::string_view key, const LogImages& images, std::int64_t step, const State& state) override {
    to.log_images(key, images, step, state);
  }
  void log_table(std::string_view key, const LogTable& table, std::int64_t step, const State& state) override {
    to.log_table(key, table, step, state);
  }
  void log_histogram(std::string_view key, const LogHistogram& histogram, std::int64_t step,
                     const State& state) override {
    to.log_histogram(key, histogram, step, state);
  }
  void upload_file(const LogFile& file, const State& state) override { to.upload_file(file, state); }
  void log_traces(std::span<const LogEntry> traces, const State& state) override { to.log_traces(traces, state); }
  bool wants_traces() const override { return true; }
  LoggerDestination& to;
};

TEST_CASE("A destination of whole records gets as one what its methods for one kind each are given") {
  struct Kept final : RecordDestination {
    void log_record(const Record& record, const State&) override { all.push_back(record.keep()); }
    std::vector<std::shared_ptr<const Record>> all;
  };
  State state;
  state.timestamp = state.timestamp.to_next_batch(4, 0, 1s);
  Kept kept;
  HandsOn between(kept);
  Logger logger(state, {&between});
  const LogEntry entries[] = {{"a", 0.5}};
  logger.log_metrics(entries, 7);
  logger.log_hyperparameters(entries);
  logger.log_traces(entries);
  logger.log_images("images", {.images = at::zeros({4, 4})}, 8);
  logger.log_table("table", {.columns = {"x"}, .rows = {{2.5}}}, 9);
  logger.log_histogram("histogram", LogHistogram::of(at::ones({3})), 10);
  REQUIRE(kept.all.size() == 6);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(kept.all[i]->entries()[0].key == "a");
    CHECK(std::get<double>(kept.all[i]->entries()[0].value) == 0.5);
  }
  CHECK(kept.all[0]->kind() == Record::Kind::METRICS);
  CHECK(kept.all[0]->step() == 7);
  CHECK(kept.all[1]->kind() == Record::Kind::HYPERPARAMETERS);
  CHECK(kept.all[2]->kind() == Record::Kind::TRACES);
  CHECK(kept.all[3]->get<LogImages>()->images.numel() == 16);
  CHECK(kept.all[3]->key() == "images");
  CHECK(kept.all[4]->get<LogTable>()->columns == std::vector<std::string>{"x"});
  CHECK(kept.all[5]->get<LogHistogram>()->counts.numel() == 64);
  CHECK(kept.all[5]->step() == 10);
  CHECK(kept.all[5]->timestamp() == state.timestamp);
}

TEST_CASE("InMemoryLogger gives back any timestamp, also those that are no batch later than the last") {
  Run run;
  std::vector<Timestamp> times;
  const auto log = [&](const Timestamp& now) {
    times.push_back(run.state.timestamp = now);
    run.logger.log_metrics({{"a", std::int64_t{1}}});
  };
  Timestamp now;
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (int batch = 0; batch < 5; ++batch) log(now = now.to_next_batch(4, 9, Seconds(0.1 * batch)));
    log(now = now.to_next_epoch(1ms));
  }
  log(now);                                             // time has not moved
  log(now = now.to_next_batch(std::int64_t{1} << 40));  // more samples than 32 bits count
  log(now = now.to_next_iteration());
  log(now = Timestamp{});  // a checkpoint of long ago was loaded
  log(now = Timestamp{.epoch = 1, .batch = 2, .sample = -3});
  const auto points = run.memory.get_timeseries("a");
  REQUIRE(points.size() == times.size());
  for (std::size_t i = 0; i < times.size(); ++i) CHECK(points[i].timestamp == times[i]);
}

TEST_CASE("InMemoryLogger gives back every value and its type, whatever came before under the same key") {
  constexpr auto kLowest = std::numeric_limits<std::int64_t>::min(),
                 kLargest = std::numeric_limits<std::int64_t>::max();
  const std::vector<std::vector<LogValue>> series = {
      {std::int64_t{5}, std::int64_t{6}, std::int64_t{7}, std::int64_t{0}, std::int64_t{0}, std::int64_t{9}},
      {kLowest, kLargest, kLowest, kLargest, std::int64_t{-1}, std::int64_t{1}},
      {0.5, 0.25, 0.1, 1e300, 0.5, HUGE_VAL, -HUGE_VAL, -0.0},
      {std::int64_t{1}, 0.5, true, std::string("text"), false, std::int64_t{2}},
      {std::string("first"), 0.1, std::string()},
      {true, true, 1.0},
  };
  for (std::size_t i = 0; i < series.size(); ++i) {
    CAPTURE(i);
    Run run;
    for (const LogValue& value : series[i]) run.logger.log_metrics({{"key", value}});
    const auto points = run.memory.get_timeseries("key");
    REQUIRE(points.size() == series[i].size());
    for (std::size_t j = 0; j < points.size(); ++j) {
      CAPTURE(j);
      REQUIRE(points[j].value.index() == series[i][j].index());
      if (const auto* text = std::get_if<std::string>(&series[i][j]))
        CHECK(std::get<std::string>(points[j].value) == *text);
      else
        CHECK(points[j].number() == to_number(series[i][j]));
    }
  }
  Run run;
  for (double value : {1.5, std::nan(""), 2.5}) run.logger.log_metrics({{"nan", value}});
  CHECK(std::isnan(run.numbers("nan").at(1)));
  CHECK(run.numbers("nan").at(2) == 2.5);
}

TEST_CASE("InMemoryLogger reads tensors of every common type, and copies them") {
  Run run;
  at::Tensor changing = at::tensor(1.0F);
  run.logger.log_metrics({{"float", changing},
                          {"double", at::tensor(0.1, at::kDouble)},
                          {"half", at::tensor(0.5F).to(at::kHalf)},
                          {"bfloat16", at::tensor(0.5F).to(at::kBFloat16)},
                          {"long", at::tensor(std::int64_t{1} << 60)},
                          {"int", at::tensor(-3, at::kInt)},
                          {"byte", at::tensor(200, at::kByte)},
                          {"bool", at::ones({}, at::kBool)},
                          {"element", at::arange(4.0).slice(0, 2, 3)},
                          {"graph", at::tensor(3.0F).requires_grad_() * 2}});
  changing.fill_(9);
  CHECK(run.numbers("float") == std::vector{1.0});
  CHECK(run.numbers("double") == std::vector{0.1});
  CHECK(run.numbers("half") == std::vector{0.5});
  CHECK(run.numbers("bfloat16") == std::vector{0.5});
  CHECK(std::get<std::int64_t>(run.memory.most_recent("long").value) == std::int64_t{1} << 60);
  CHECK(std::get<std::int64_t>(run.memory.most_recent("int").value) == -3);
  CHECK(std::get<std::int64_t>(run.memory.most_recent("byte").value) == 200);
  CHECK(std::get<bool>(run.memory.most_recent("bool").value));
  CHECK(run.numbers("element") == std::vector{2.0});
  CHECK(run.numbers("graph") == std::vector{6.0});
}

TEST_CASE("InMemoryLogger refuses a tensor that is no number, and keeps nothing of that call") {
  for (const at::Tensor& tensor : {at::zeros({3}), at::zeros({0}), at::Tensor(), at::zeros({}, at::kComplexFloat)}) {
    Run run;
    CHECK_THROWS_AS(run.logger.log_metrics({{"fine", 1.0}, {"odd", tensor}}), DataError);
    CHECK(run.memory.keys().empty());
  }
  Run run;
  CHECK_THROWS_WITH_AS(run.logger.log_metrics({{"odd", at::zeros({3})}}),
                       "Logger: odd must be one real number, got a tensor of shape [3] and type Float", DataError);
}

TEST_CASE("InMemoryLogger names the keys that exist when asked for another") {
  Run run;
  CHECK_THROWS_WITH_AS(run.memory.most_recent("lost"),
                       "InMemoryLogger: nothing was logged as \"lost\". Logged are: no metrics yet", ConfigError);
  run.logger.log_metrics({{"loss/train/total", 1.0}, {"a \"quoted\"\nkey", 1.0}});
  CHECK_THROWS_WITH_AS(
      run.memory.get_timeseries("lost"),
      "InMemoryLogger: nothing was logged as \"lost\". Logged are: a \"quoted\"\nkey, loss/train/total", ConfigError);
}

TEST_CASE("InMemoryLogger keeps the last value of each hyperparameter") {
  Run run;
  run.logger.log_hyperparameters({{"lr", 0.1}, {"name", std::string("a")}, {"seed", at::tensor(3)}});
  run.logger.log_hyperparameters({{"lr", 0.2}});
  const auto& values = run.memory.hyperparameters();
  CHECK(values.size() == 3);
  CHECK(std::get<double>(values.at("lr")) == 0.2);
  CHECK(std::get<std::string>(values.at("name")) == "a");
  CHECK(std::get<std::int64_t>(values.at("seed")) == 3);
}

TEST_CASE("InMemoryLogger runs no operator in a step on the CPU") {
  Run run;
  static int operators = 0;  // a callback of libtorch has no other place for it
  const at::Tensor loss = at::tensor(1.0F), accuracy = at::tensor(0.5F);
  operators = 0;
  const auto handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback([](const at::RecordFunction&) -> std::unique_ptr<at::ObserverContext> {
        ++operators;
        return nullptr;
      }).scopes({at::RecordScope::FUNCTION}));
  for (int i = 0; i < 10; ++i) {
    log_step(run, loss, accuracy);
    run.next_batch();
  }
  const int in_steps = operators;
  (void)loss.item();
  at::removeCallback(handle);
  CHECK(in_steps == 0);
  CHECK(operators > 0);  // the counter counts
}

TEST_CASE("InMemoryLogger reads what was logged on a GPU in the order in which it came" *
          doctest::skip(!at::hasCUDA())) {
  Run run;
  for (int i = 0; i < 2500; ++i) {
    run.logger.log_metrics({{"loss", at::full({}, i, at::device(at::kCUDA))}});
    if (i == 1999) run.memory.epoch_end(run.state, run.logger);
    run.next_batch();
  }
  CHECK(run.memory.most_recent("loss").number() == 2499);
  const auto losses = run.numbers("loss");
  REQUIRE(losses.size() == 2500);
  for (int i = 0; i < 2500; ++i) CHECK(losses[static_cast<std::size_t>(i)] == i);
}

TEST_CASE("InMemoryLogger keeps 10,000 steps in less than half a MiB") {
  Run run;
  const auto in_use = [] {
    const auto info = mallinfo2();
    return info.uordblks + info.hblkhd;
  };
  const auto before = in_use();
  for (int i = 0; i < 10'000; ++i) {
    at::Tensor loss = at::empty({}), accuracy = at::empty({});
    *loss.mutable_data_ptr<float>() = std::sin(static_cast<float>(i));
    *accuracy.mutable_data_ptr<float>() = std::cos(static_cast<float>(i));
    log_step(run, loss, accuracy);
    run.next_batch(128, Seconds(0.001 * i));
    if (i % 100 == 99) run.state.timestamp = run.state.timestamp.to_next_epoch(1ms);
  }
  const auto growth = in_use() - before;
  CAPTURE(growth);
  CHECK(growth < 512 * 1024);
  CHECK(run.numbers("loss/train/total").at(9'999) == std::sin(9'999.F));
  CHECK(run.numbers("time/sample").at(9'999) == 128 * 9'999);
}

}  // namespace
}  // namespace composer::loggers::in_memory_logger_test
