#include "composer/loggers/console_logger.h"

#include <cmath>
#include <sstream>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "tests/loggers/scripted_run.h"
#include "tests/support/doctest.h"

namespace composer::loggers::console_logger_test {
namespace {

struct Console {
  explicit Console(Time interval, bool traces = false)
      : logger({.log_interval = interval, .stream = out, .log_traces = traces}), run(logger) {}
  // What was printed since the last call.
  std::string text() {
    std::string text = out.str();
    out.str("");
    return text;
  }
  std::ostringstream out;
  ConsoleLogger logger;
  ScriptedRun run;
};

const std::string kNoHyperparameters = "******************************\nConfig:\n\n******************************\n";

TEST_CASE("ConsoleLogger prints what was logged since it last printed, first after the first batch") {
  Console console("2ba");
  console.run.logger.log_hyperparameters({{"seed", std::int64_t{3}},
                                          {"name", std::string("a: b")},
                                          {"fast", true},
                                          {"lr", 0.05},
                                          {"third", 1.0 / 3},
                                          {"many", 100'000.0},
                                          {"version", std::string("0.1.0")},
                                          {"number", std::string("1.5")}});
  console.run.fit_start("5ba", 4);
  CHECK(console.text() ==
        "******************************\nConfig:\nfast: true\nlr: 0.05\nmany: 100000\nname: \"a: b\"\n"
        "number: \"1.5\"\nseed: 3\nthird: 0.3333333333333333\nversion: 0.1.0\n\n"
        "******************************\n");
  console.run.epoch_start();
  console.run.batch(0.83766);
  CHECK(console.text() ==
        "[batch=1/5]:\n\t Train time/epoch: 0\n\t Train time/batch: 0\n\t Train time/sample: 0\n"
        "\t Train time/batch_in_epoch: 0\n\t Train time/sample_in_epoch: 0\n"
        "\t Train trainer/device_train_microbatch_size: 4\n\t Train loss/train/total: 0.8377\n"
        "\t Train metrics/train/MulticlassAccuracy: 0.5000\n");
  console.run.batch(at::tensor(0.25F), at::tensor(0.75));
  CHECK(console.text().find("[batch=2/5]:\n\t Train time/batch: 1\n") == 0);
  console.run.batch(1.0);
  CHECK(console.text().empty());
  console.run.batch(2.0);
  CHECK(console.text().find("[batch=4/5]:") == 0);
  console.run.epoch_end();
  console.run.epoch_start();
  console.run.batch(3.0);
  CHECK(console.text().empty());
  console.run.fit_end();
  const std::string last = console.text();
  CHECK(last.find("[batch=5/5]:\n\t Train metrics/train/MulticlassAccuracy: 0.5000\n\t Train time/epoch: 1\n") == 0);
  CHECK(last.find("Train loss/train/total: 3.0000\n") != last.npos);
  console.run.fire(Event::FIT_START);  // a second fit
  console.run.fit_end();
  CHECK(console.text().empty());
}

TEST_CASE("ConsoleLogger prints the end of a fit after time was reset, also if another has ended at that batch") {
  Console console("10ba");
  for (int fit = 0; fit < 2; ++fit) {
    console.run.state.timestamp = {};
    console.run.state.previous_timestamp.reset();
    console.run.fit_start("2ba", 4);
    console.run.batch(1.0);
    console.text();
    console.run.batch(1.0);
    console.run.fit_end();
    CHECK(console.text().find("[batch=2/2]:") == 0);
  }
}

TEST_CASE("ConsoleLogger in epochs shows the end of the epoch, not the beginning of the next") {
  for (const std::optional<std::int64_t> length : {std::optional<std::int64_t>(2), std::optional<std::int64_t>()}) {
    Console console("2ep");
    console.run.fit_start("3ep", length);
    CHECK(console.text() == kNoHyperparameters);
    for (int epoch = 1; epoch <= 3; ++epoch) {
      console.run.epoch_start();
      for (int batch = 0; batch < 2; ++batch) console.run.batch(1.0);
      CHECK(console.text().empty());
      console.run.epoch_end();
      const std::string title = "[epoch=" + std::to_string(epoch) + "][batch=2" + (length ? "/2]:" : "]:");
      if (epoch < 3) CHECK(console.text().find(title) == 0);
      if (epoch < 3) continue;
      CHECK(console.text().empty());
      console.run.fit_end();
      CHECK(console.text().find(title) == 0);
    }
  }
}

TEST_CASE("ConsoleLogger in epochs shows losses and metrics as means, in which a small last batch counts little") {
  Console console("1ep");
  console.run.fit_start("2ep", 3);
  for (int epoch = 0; epoch < 2; ++epoch) {
    console.text();
    console.run.epoch_start();
    console.run.batch(1.0, 0.5, 8);
    console.run.batch(2.0, 1.0, 8);
    console.run.batch(60.0, 0.0, 1);
    console.run.epoch_end(0.0);
    const std::string text = console.text();
    CHECK(text.find("Train loss/train/total: 4.9412\n") != text.npos);
    CHECK(text.find("Train metrics/train/MulticlassAccuracy: 0.7059\n") != text.npos);
    CHECK(text.find("Train time/batch_in_epoch: 2\n") != text.npos);
  }
}

TEST_CASE("ConsoleLogger in epochs shows the means of metrics under the label of the fit's loader, and of no other") {
  Console console("1ep");
  console.run.state.dataloader_label = "shapes";
  console.run.fit_start("1ep", 2);
  console.run.epoch_start();
  for (const double accuracy : {0.5, 0.0}) {
    console.run.logger.log_metrics(
        {{"metrics/shapes/MulticlassAccuracy", accuracy}, {"metrics/train/Other", accuracy}});
    console.run.batch(1.0, 0.5, 8);
  }
  console.run.epoch_end(0.0);
  const std::string text = console.text();
  CHECK(text.find("Train metrics/shapes/MulticlassAccuracy: 0.2500\n") != text.npos);
  CHECK(text.find("Train metrics/train/Other: 0.0000\n") != text.npos);
}

TEST_CASE("ConsoleLogger prints each hyperparameter once, also those that a fit after an evaluation logs") {
  Console console("1ep");
  console.run.logger.log_hyperparameters({{"seed", std::int64_t{3}}});
  console.run.eval("val", 1, 1, {});
  CHECK(console.text().find("Config:\nseed: 3\n") != std::string::npos);
  console.run.logger.log_hyperparameters({{"seed", std::int64_t{3}}, {"lr", 0.5}});
  console.run.fit_start("1ep", 1);
  const std::string text = console.text();
  CHECK(text.find("Config:\nlr: 0.5\n") != text.npos);
  CHECK(text.find("seed") == text.npos);
  console.run.fire(Event::FIT_START);
  CHECK(console.text().empty());
}

TEST_CASE("ConsoleLogger tells of an evaluation, and forgets what was logged before it") {
  Console console("10ep");
  console.run.logger.log_metrics({{"before", 1.0}});
  console.run.eval("val", 3, 3, {{"metrics/val/CrossEntropy", 1.24649}});
  CHECK(console.text() == kNoHyperparameters +
                              "[Eval batch=1/3] Eval on val data\n[Eval batch=2/3] Eval on val data\n"
                              "[Eval batch=3/3] Eval on val data:\n\t Eval metrics/val/CrossEntropy: 1.2465\n");
  const auto told = [&](std::optional<std::int64_t> length, std::int64_t batches) {
    console.run.eval("val", length, batches, {});
    std::vector<int> told;
    std::istringstream lines(console.text());
    for (std::string line; std::getline(lines, line);) told.push_back(std::stoi(line.substr(line.find('=') + 1)));
    return told;
  };
  CHECK(told(12, 12) == std::vector{1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12});
  CHECK(told(10, 10) == std::vector{1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  CHECK(told(1001, 1001) == std::vector{1, 101, 201, 301, 401, 501, 601, 701, 801, 901, 1001});
  CHECK(told(1, 1) == std::vector{1});
  CHECK(told(0, 0) == std::vector{0});
  CHECK(told({}, 30) == std::vector{30});
}

TEST_CASE("ConsoleLogger prints traces only when asked") {
  CHECK(!Console("1ba").logger.wants_traces());
  Console console("1ba", true);
  CHECK(console.logger.wants_traces());
  console.run.logger.log_traces(
      std::vector<LogEntry>{{"algorithm_traces/LabelSmoothing/Event.BEFORE_LOSS", std::int64_t{1}}});
  CHECK(console.text() == "[trace]: algorithm_traces/LabelSmoothing/Event.BEFORE_LOSS:1\n\n");
}

TEST_CASE("ConsoleLogger prints values of every type, and the shape of a tensor of several elements") {
  Console console("1ba");
  console.run.fit_start({}, {});
  console.text();
  console.run.logger.log_metrics({{"i", std::int64_t{-123456789}},
                                  {"f", 1e20},
                                  {"neg", -0.00001},
                                  {"nan", -std::nan("")},
                                  {"inf", -HUGE_VAL},
                                  {"max", at::tensor(1e300, at::kDouble)},
                                  {"flag", true},
                                  {"text", std::string("abc")},
                                  {"one", at::tensor({7})},
                                  {"many", at::zeros({2, 3})}});
  console.run.fire(Event::BATCH_END);
  const std::string text = console.text();
  CHECK(text.find(":\n\t Train i: -123456789\n\t Train f: 100000000000000000000.0000\n\t Train neg: -0.0000\n"
                  "\t Train nan: nan\n\t Train inf: -inf\n\t Train max: 1") == 0);
  CHECK(
      text.ends_with("\n\t Train flag: True\n\t Train text: \"abc\"\n\t Train one: 7\n"
                     "\t Train many: Tensor of shape torch.Size([2, 3])\n"));
}

TEST_CASE("ConsoleLogger refuses bad options") {
  CHECK_THROWS_WITH_AS(ConsoleLogger({.log_interval = "3sp"}),
                       "ConsoleLogger: log_interval must be in ep or ba, got 3sp", ConfigError);
  CHECK_THROWS_WITH_AS(ConsoleLogger({.log_interval = "0ba"}),
                       "ConsoleLogger: log_interval must be at least 1, got 0ba", ConfigError);
  CHECK_THROWS_AS(ConsoleLogger({.log_interval = "-1ep"}), ConfigError);
  CHECK_THROWS_WITH_AS(ConsoleLogger({.stream = "stdin"}),
                       "ConsoleLogger: stream must be stderr, stdout or a std::ostream, got \"stdin\"", ConfigError);
  CHECK_NOTHROW(ConsoleLogger({.stream = "stdout"}));
}

}  // namespace
}  // namespace composer::loggers::console_logger_test
