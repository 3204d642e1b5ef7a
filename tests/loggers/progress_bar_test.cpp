#include "composer/loggers/progress_bar.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <thread>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "tests/loggers/scripted_run.h"
#include "tests/support/doctest.h"

namespace composer::loggers::progress_bar_test {
namespace {

using namespace std::chrono_literals;

// What a terminal shows after it was sent the text: lines, of which the last may be unfinished. Knows what the bar
// uses.
std::vector<std::string> screen(const std::string& sent) {
  std::vector<std::string> lines{""};
  for (std::size_t i = 0; i < sent.size(); ++i) {
    if (sent[i] == '\n') {
      lines.emplace_back();
    } else if (sent[i] == '\r') {
      REQUIRE(sent.compare(i, 4, "\r\x1b[K") == 0);
      lines.back().clear();
      i += 3;
    } else if (sent[i] == '\x1b') {
      i = sent.find('m', i);
      REQUIRE(i != sent.npos);
    } else {
      lines.back() += sent[i];
    }
  }
  return lines;
}

// Columns of a line without control characters; the wide ones that these tests use begin with 0xE6.
int columns_of_text(const std::string& line) {
  int columns = 0;
  for (const char c : line) {
    const auto byte = static_cast<unsigned char>(c);
    CHECK(byte >= 0x20);
    columns += byte == 0xE6 ? 2 : (byte & 0xC0) != 0x80 ? 1 : 0;
  }
  return columns;
}

std::size_t count_of(const std::string& text, std::string_view what) {
  std::size_t count = 0;
  for (auto at = text.find(what); at != text.npos; at = text.find(what, at + 1)) ++count;
  return count;
}

struct Place {
  bool interactive = true, utf8 = false, colors = false;
  int columns = 120;
};

struct Bar {
  explicit Bar(Place place = {})
      : logger({.stream = out}, {.interactive = place.interactive,
                                 .utf8 = place.utf8,
                                 .colors = place.colors,
                                 .columns = [this] { return columns; },
                                 .clock = [this] { return now; }}),
        run(logger),
        columns(place.columns) {
    run.during_batch = [this] { now += run.batch_takes.count(); };
  }
  std::vector<std::string> lines() const { return screen(out.str()); }

  std::ostringstream out;
  ProgressBar logger;
  ScriptedRun run;
  int columns;
  double now = 1000;
};

TEST_CASE("ProgressBar shows epoch, batch, speed, losses, metrics and the time that is left") {
  Bar bar;
  bar.run.fit_start("2ep", 4);
  CHECK(bar.lines().back() == "epoch 1/2 [                              ]   0%  0/4  0s");
  bar.run.epoch_start();
  bar.run.batch(1.0);
  bar.run.batch(at::tensor(0.25F), at::tensor(0.75));
  CHECK(bar.lines().back() ==
        "epoch 1/2 [===============>              ]  50%  2/4  loss 0.2500  Accuracy 0.7500  8.00 samples/s  1s  3s "
        "left");
  CHECK(bar.lines().size() == 1);
}

TEST_CASE("ProgressBar leaves a line for each epoch, with the metrics of its evaluations") {
  Bar bar({.columns = 130});
  bar.run.fit_start("2ep", 4);
  for (int epoch = 0; epoch < 2; ++epoch) {
    bar.run.epoch_start();
    for (int batch = 0; batch < 4; ++batch) bar.run.batch(1.0 / (1 + batch));
    bar.run.epoch_end(0.875);
    bar.run.eval("eval", 3, 2, {{"metrics/eval/CrossEntropy", 1.24649}, {"metrics/other/Not", 1.0}});
    CHECK(bar.lines().back() == "eval      [====================>         ]  66%  2/3  8.00 samples/s  1s  1s left");
    bar.run.eval("val", {}, 1, {{"metrics/val/MulticlassAccuracy", 0.5}});
    bar.run.fire(Event::EPOCH_CHECKPOINT);
  }
  bar.run.fit_end();
  bar.run.close();
  CHECK(bar.lines() == std::vector<std::string>{"epoch 1/2  4 batches  loss 0.5208  Accuracy 0.5000  eval: "
                                                "CrossEntropy 1.2465  val: Accuracy 0.5000  8.00 samples/s  2s",
                                                "epoch 2/2  4 batches  loss 0.5208  Accuracy 0.5000  eval: "
                                                "CrossEntropy 1.2465  val: Accuracy 0.5000  8.00 samples/s  2s",
                                                ""});
}

TEST_CASE("ProgressBar shows means over an epoch, in which a small last batch counts little, and losses first") {
  for (const bool on_device : {false, true}) {  // of tensors that are read later
    Bar bar({.columns = 130});
    const auto value = [&](double number) -> LogValue {
      if (on_device) return at::tensor(number).to(test::device_of_tests());
      return number;
    };
    bar.run.fit_start("2ep", 3);
    bar.run.logger.log_metrics({{"metrics/train/MulticlassAccuracy", 0.1}});  // the end of an epoch before a resume
    for (int epoch = 0; epoch < 2; ++epoch) {
      bar.run.epoch_start();
      bar.run.batch(value(1.0), value(0.5), 8);
      bar.run.batch(value(2.0), value(1.0), 8);
      bar.run.batch(value(60.0), value(0.0), 1);
      bar.run.epoch_end(value(0.0));
      bar.run.fire(Event::EPOCH_CHECKPOINT);
    }
    bar.run.fit_end();
    bar.run.close();
    REQUIRE(bar.lines().size() >= 2);
    for (std::size_t epoch = 0; epoch < 2; ++epoch)
      CHECK(bar.lines()[epoch].find("  3 batches  loss 4.9412  Accuracy 0.7059  ") != std::string::npos);
  }
}

TEST_CASE("ProgressBar shows a run in batches as one bar, and leaves a line for each evaluation") {
  Bar bar;
  bar.run.fit_start("8ba", 3);
  for (int batch = 0; batch < 4; ++batch) bar.run.batch(0.5);
  CHECK(bar.lines().back() ==
        "batch [===============>              ]  50%  4/8  loss 0.5000  Accuracy 0.5000  8.00 samples/s  2s  2s left");
  bar.run.eval("eval", 4, 4, {{"metrics/eval/CrossEntropy", 1.5}});
  bar.run.epoch_end();  // of no interest
  bar.run.fire(Event::EPOCH_CHECKPOINT);
  for (int batch = 0; batch < 4; ++batch) bar.run.batch(0.5);
  bar.run.fit_end();
  CHECK(bar.lines() == std::vector<std::string>{"batch 4  eval: CrossEntropy 1.5000  2s",
                                                "batch  8/8  loss 0.5000  Accuracy 0.5000  8.00 samples/s  6s", ""});
}

TEST_CASE("ProgressBar shows runs measured in other units, and runs that overshoot") {
  const auto at_end = [](OptionalTime duration) {
    Bar bar;
    bar.run.fit_start(duration, 100);
    for (int batch = 0; batch < 4; ++batch) bar.run.batch(0.5);
    return bar.lines().back();
  };
  CHECK(at_end("14sp").starts_with("sample [==============================] 100%  16/14  loss"));
  CHECK(at_end("100tok").starts_with("token ["));
  CHECK(at_end("4sec").starts_with("time [===============>              ]  50%  2/4  loss"));
  CHECK(at_end({}).starts_with("epoch 1 [=>"));
  CHECK(at_end("0ba").starts_with("batch ["));
}

TEST_CASE(
    "ProgressBar has no percent for a loader of unknown length, and knows from the last epoch how long it takes") {
  Bar bar;
  bar.run.fit_start("2ep", {});
  bar.run.epoch_start();
  for (int batch = 0; batch < 3; ++batch) bar.run.batch(0.5);
  CHECK(bar.lines().back() == "epoch 1/2  batch 3  loss 0.5000  Accuracy 0.5000  8.00 samples/s  1.5s");
  bar.run.batch(0.5);
  bar.run.epoch_end();
  bar.run.fire(Event::EPOCH_CHECKPOINT);
  bar.run.epoch_start();
  bar.run.batch(0.5);
  CHECK(bar.lines().back() == "epoch 2/2  batch 1  loss 0.5000  Accuracy 0.5000  8.00 samples/s  2.5s  2s left");
}

TEST_CASE("ProgressBar keeps every metric of an epoch in a narrow terminal, rather than its speed") {
  Bar bar({.columns = 80});
  bar.run.fit_start("1ep", 1);
  bar.run.batch(1.0);
  bar.run.epoch_end();
  bar.run.eval("a", 1, 1, {{"metrics/a/CrossEntropy", 1.5}, {"metrics/a/MulticlassAccuracy", 0.5}});
  bar.run.fire(Event::EPOCH_CHECKPOINT);
  CHECK(bar.lines().front() == "epoch 1/1  1 batch  loss 1.0000  acc 0.5000  a: ce 1.5000  acc 0.5000  0.5s");
}

TEST_CASE("ProgressBar keeps the line of an epoch of the default example in 80 columns") {
  for (const int columns : {79, 80, 81, 120}) {
    CAPTURE(columns);
    Bar bar({.columns = columns});
    bar.run.fit_start("10ep", 469);
    bar.run.epoch_start();
    bar.run.batch(0.4321, 0.8765);
    bar.run.epoch_end(0.8765);
    bar.run.eval("eval", 20, 20, {{"metrics/eval/CrossEntropy", 0.4}, {"metrics/eval/MulticlassAccuracy", 0.86}});
    bar.run.fire(Event::EPOCH_CHECKPOINT);
    CHECK(columns_of_text(bar.lines().front()) < columns);
    CHECK(bar.lines().front().find(columns > 90 ? "Accuracy 0.8765" : "acc 0.8765") != std::string::npos);
  }
}

TEST_CASE("ProgressBar shows a run without max_duration as epochs without an end") {
  const Time never(std::numeric_limits<std::int64_t>::max(), TimeUnit::BATCH);
  for (const OptionalTime none : {OptionalTime(), OptionalTime(never)}) {
    Bar bar;
    bar.run.fit_start(none, {});
    bar.run.epoch_start();
    bar.run.batch(0.5);
    CHECK(bar.lines().back() == "epoch 1  batch 1  loss 0.5000  Accuracy 0.5000  8.00 samples/s  0.5s");
    bar.run.fit_end();
    CHECK(bar.out.str().find("9223372036854775807") == std::string::npos);
  }
}

TEST_CASE("ProgressBar redraws no more often than it may") {
  Bar bar;
  bar.run.batch_takes = 1ms;
  bar.run.fit_start("1ep", 1000);
  for (int batch = 0; batch < 1000; ++batch) bar.run.batch(0.5);
  CHECK(count_of(bar.out.str(), "\r") <= 11);
  CHECK(count_of(bar.out.str(), "\r") >= 9);
}

TEST_CASE("ProgressBar leaves no line for most epochs that take less time than a redraw") {
  Bar bar;
  bar.run.batch_takes = 1ms;
  bar.run.fit_start("995ep", 1);
  for (int epoch = 0; epoch < 995; ++epoch) {
    bar.run.epoch_start();
    bar.run.batch(0.5);
    bar.run.epoch_end();
    bar.run.fire(Event::EPOCH_CHECKPOINT);
  }
  bar.run.fit_end();
  const auto lines = bar.lines();
  CHECK(lines.size() < 14);
  CHECK(lines.front().starts_with("epoch   1/995  1 batch "));
  CHECK(lines.at(lines.size() - 2).starts_with("epoch 995/995  1 batch "));
}

TEST_CASE("ProgressBar writes plain lines where nothing can be redrawn: one an epoch, and some in a long one") {
  Bar bar({.interactive = false});
  bar.run.fit_start("2ep", 100);
  for (int epoch = 0; epoch < 2; ++epoch) {
    bar.run.epoch_start();
    for (int batch = 0; batch < 100; ++batch) bar.run.batch(0.5);
    bar.run.epoch_end();
    bar.run.fire(Event::EPOCH_CHECKPOINT);
  }
  bar.run.fit_end();
  bar.run.close();
  CHECK(bar.out.str() ==
        "epoch 1/2  60%  60/100  loss 0.5000  Accuracy 0.5000  8.00 samples/s  30s  1:10 left\n"
        "epoch 1/2  100 batches  loss 0.5000  Accuracy 0.5000  8.00 samples/s  50s  50s left\n"
        "epoch 2/2  20%  20/100  loss 0.5000  Accuracy 0.5000  8.00 samples/s  1:00  40s left\n"
        "epoch 2/2  80%  80/100  loss 0.5000  Accuracy 0.5000  8.00 samples/s  1:30  10s left\n"
        "epoch 2/2  100 batches  loss 0.5000  Accuracy 0.5000  8.00 samples/s  50s\n");
}

TEST_CASE("ProgressBar never writes a line wider than the terminal, whatever the names are") {
  for (const bool utf8 : {false, true})
    for (int columns = 1; columns <= 130; ++columns) {
      CAPTURE(columns);
      Bar bar({.utf8 = utf8, .colors = columns % 2 == 0, .columns = columns});
      bar.run.fit_start("1000ep", 100);
      bar.run.logger.log_metrics({{"loss/train/\xe6\x97\xa5\xe6\x9c\xac\xc3\xa4\n\t\x1b[31m\xff", 1e300}});
      for (int batch = 0; batch < 37; ++batch) bar.run.batch(std::nan(""), at::tensor(-1.0F), 1'000'000);
      const std::string last = bar.lines().back();
      CHECK(columns_of_text(last) < std::max(columns, 2));
      CHECK(bar.lines().size() == 1);
      if (columns > 12) CHECK(last.starts_with("epoch    1/1"));
    }
}

TEST_CASE("ProgressBar ends the line that it shows when it is closed after an error, once") {
  Bar bar({.utf8 = true, .colors = true});
  bar.run.fit_start("2ep", 4);
  bar.run.batch(1.0);
  bar.run.close();
  bar.run.close();
  CHECK(bar.lines().size() == 2);
  CHECK(bar.lines().back().empty());
  CHECK(bar.out.str().ends_with("\x1b[0m\n"));

  Bar waiting;  // the epoch has ended, its evaluation fails
  waiting.run.fit_start("2ep", 4);
  for (int batch = 0; batch < 4; ++batch) waiting.run.batch(1.0);
  waiting.run.epoch_end();
  waiting.run.fire(Event::EVAL_START);
  waiting.run.close();
  CHECK(waiting.lines().size() == 2);
  CHECK(waiting.lines().front().starts_with("epoch 1/2  4 batches"));
}

TEST_CASE("ProgressBar survives a second fit, evaluations and predictions of their own, and runs without batches") {
  Bar bar;
  bar.run.fit_start("1ep", 1);
  bar.run.fit_end();
  CHECK(bar.lines() == std::vector<std::string>{""});
  for (int fit = 0; fit < 2; ++fit) {
    bar.run.fit_start(Time(fit + 1, TimeUnit::EPOCH), 1);
    bar.run.batch(1.0);
    bar.run.epoch_end();
    bar.run.fire(Event::EPOCH_CHECKPOINT);
    bar.run.fit_end();
  }
  bar.run.eval("eval", 2, 2, {{"metrics/eval/CrossEntropy", 1e-7}});
  bar.run.eval("empty", 0, 0, {});
  bar.run.fire(Event::PREDICT_START);
  bar.run.state.predict_timestamp = Timestamp{}.to_next_batch(4);
  bar.now += 2;
  bar.run.fire(Event::PREDICT_BATCH_END);
  CHECK(bar.lines().back().starts_with("predict "));
  bar.run.fire(Event::PREDICT_END);
  CHECK(bar.lines() ==
        std::vector<std::string>{"epoch 1/1  1 batch  loss 1.0000  Accuracy 0.5000  8.00 samples/s  0.5s",
                                 "epoch 2/2  1 batch  loss 1.0000  Accuracy 0.5000  8.00 samples/s  0.5s",
                                 "eval  2/2  CrossEntropy 1.00e-07  8.00 samples/s  1s", "empty  0/0  0s",
                                 "predict  1/1  2.00 samples/s  2s", ""});
}

TEST_CASE("ProgressBar draws eighths of a block in UTF-8, and colors only where it may") {
  Bar bar({.utf8 = true, .columns = 44});
  bar.run.fit_start("16ba", 16);
  for (int batch = 0; batch < 5; ++batch) bar.run.batch(1.0);
  CHECK(bar.lines().back() == "batch │██▌     │  31%  loss 1.0000  6s left");
  CHECK(count_of(bar.out.str(), "\x1b[") == count_of(bar.out.str(), "\r\x1b[K"));
  Bar colored({.colors = true});
  colored.run.fit_start("16ba", 16);
  CHECK(count_of(colored.out.str(), "\x1b[32m") == 1);
}

TEST_CASE("ProgressBar shows large and small values in few columns") {
  Bar bar({.columns = 200});
  bar.run.fit_start("1ep", 4);
  bar.run.logger.log_metrics({{"loss/train/a", 0.00001234},
                              {"loss/train/b", 123.456},
                              {"loss/train/c", -54'321.0},
                              {"loss/train/d", 1e20},
                              {"loss/train/e", at::tensor(3)},
                              {"loss/train/f", -HUGE_VAL},
                              {"loss/train/g", 0.0},
                              {"loss/train/h", std::string("x")},
                              {"other", 1.0}});
  bar.run.batch(99.999);
  CHECK(bar.lines().back().find(
            "a 1.23e-05  b 123.5  c -54.3k  d 1.00e+20  e 3  f -inf  g 0.0000  h \"x\"  loss 100.0") !=
        std::string::npos);
}

TEST_CASE("ProgressBar shows any speed in few columns") {
  const auto speed = [](std::int64_t samples, Seconds seconds) {
    Bar bar;
    bar.run.batch_takes = seconds;
    bar.run.fit_start("9ba", 9);
    bar.run.batch(1.0, 1.0, samples);
    const std::string line = bar.lines().back(), before = "Accuracy 1.0000  ";
    const auto at = line.find(before) + before.size();
    return line.substr(at, line.find("/s", at) - at);
  };
  CHECK(speed(1, 8s) == "0.12 samples");
  CHECK(speed(25, 1s) == "25.0 samples");
  CHECK(speed(999, 1s) == "999 samples");
  CHECK(speed(1000, 1s) == "1000 samples");
  CHECK(speed(6384, 1s) == "6384 samples");
  CHECK(speed(9999, 1s) == "9999 samples");
  CHECK(speed(10'000, 1s) == "10.0k samples");
  CHECK(speed(2'345'678, 1s) == "2.3M samples");
  CHECK(speed(0, 500ms) == "2.00 batches");
}

TEST_CASE("ProgressBar shows what a GPU computes without waiting for it" * doctest::skip(!at::hasCUDA())) {
  Bar bar;
  bar.run.fit_start("1ep", 100);
  bar.run.batch(at::full({}, 2.5, at::device(at::kCUDA)));
  at::zeros({1}, at::device(at::kCUDA)).cpu();  // all copies have arrived
  bar.run.batch(at::full({}, 3.5, at::device(at::kCUDA)));
  CHECK(bar.lines().back().find("loss 2.5000") != std::string::npos);
}

TEST_CASE("A warning of another thread has a line of its own, above the bar of ProgressBar") {
  Bar bar;
  std::streambuf* const before = std::cerr.rdbuf(bar.out.rdbuf());  // one terminal
  bar.run.fit_start("1ep", 4);
  bar.run.epoch_start();
  bar.run.batch(1.0);
  REQUIRE(bar.lines().back().find("1/4") != std::string::npos);
  std::thread([] { warn("the upload failed"); }).join();
  CHECK(bar.lines() == std::vector<std::string>{"libcomposer: the upload failed", ""});
  bar.run.batch(1.0);
  REQUIRE(bar.lines().size() == 2);
  CHECK(bar.lines()[0] == "libcomposer: the upload failed");
  CHECK(bar.lines()[1].find("2/4") != std::string::npos);
  std::thread other([] {
    for (int i = 0; i < 200; ++i) warn("again");
  });
  for (int i = 0; i < 200; ++i) bar.run.batch(1.0);
  other.join();
  std::cerr.rdbuf(before);
  const std::vector<std::string> lines = bar.lines();
  CHECK(std::ranges::count(lines, "libcomposer: again") == 200);
  CHECK(lines.size() == 202);
}

TEST_CASE("ProgressBar refuses bad options") {
  CHECK_THROWS_WITH_AS(ProgressBar({.stream = "nowhere"}),
                       "ProgressBar: stream must be stderr, stdout or a std::ostream, got \"nowhere\"", ConfigError);
  CHECK_THROWS_WITH_AS(ProgressBar({.redraw_interval = 0s}), "ProgressBar: redraw_interval must be > 0 seconds, got 0",
                       ConfigError);
  CHECK_THROWS_WITH_AS(ProgressBar({.line_interval = -1s}), "ProgressBar: line_interval must be > 0 seconds, got -1",
                       ConfigError);
  CHECK_THROWS_AS(ProgressBar({.line_interval = Seconds(std::nan(""))}), ConfigError);
  CHECK_NOTHROW(ProgressBar());
}

}  // namespace
}  // namespace composer::loggers::progress_bar_test
