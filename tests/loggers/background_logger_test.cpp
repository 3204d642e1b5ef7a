#include "composer/loggers/background_logger.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <stdexcept>
#include <thread>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/core/record.h"
#include "composer/core/state.h"
#include "tests/support/doctest.h"
#include "tests/support/in_child.h"
#include "tests/support/warnings.h"

namespace composer::loggers::background_logger_test {
namespace {

using namespace std::chrono_literals;

// What a writer did, and what it is to do.
struct Script {
  std::vector<std::string> written;
  std::function<void(std::string_view key)> at_record = [](std::string_view) {};  // may throw or block
  std::function<void()> at_close = [] {};
  std::atomic<bool> gone = false;
};

class Writer final : public RecordWriter {
 public:
  explicit Writer(std::shared_ptr<Script> script) : script_(std::move(script)) {}
  ~Writer() override { script_->gone = true; }
  std::string where() const override { return "there"; }
  bool takes(const Record& record) const override { return record.get<LogTable>() == nullptr; }

 private:
  void write(Records records) override {
    for (const Record* record : records) {
      for (const auto& [key, value] : record->entries()) {
        script_->at_record(key);
        script_->written.push_back(join(record->step(), ' ', key, ' ', to_number(value)));
      }
      if (const auto* images = record->get<LogImages>())
        script_->written.push_back(join(record->step(), ' ', record->key(), ' ', images->images.sum().item<double>()));
      if (const auto* histogram = record->get<LogHistogram>())
        script_->written.push_back(join(record->step(), ' ', record->key(), ' ', histogram->counts.scalar_type()));
    }
  }
  void close() override { script_->at_close(); }
  const std::shared_ptr<Script> script_;
};

class Remote final : public BackgroundLogger {
 public:
  Remote(std::shared_ptr<Script> script, const BackgroundOptions& options)
      : BackgroundLogger("Remote", options), script_(std::move(script)) {}

 private:
  std::shared_ptr<RecordWriter> make_writer(const State&) override { return std::make_shared<Writer>(script_); }
  const std::shared_ptr<Script> script_;
};

struct Run {
  explicit Run(const BackgroundOptions& options = {}) : remote(script, options) {}
  void log(std::int64_t value, std::string_view key = "a") { logger.log_metrics({{key, value}}, value); }
  void close() { remote.close(state, logger); }
  const std::shared_ptr<Script> script = std::make_shared<Script>();
  State state;
  Remote remote;
  Logger logger{state, {&remote}};
};

class Gate {
 public:
  void pass() {
    std::unique_lock lock(mutex_);
    reached_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void wait_until_reached() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return reached_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false, reached_ = false;
};

TEST_CASE("Histograms that leave values out as not finite are told once, by the thread that trains") {
  Run run;
  const test::Warnings warnings;
  const auto log = [&](const char* key, const std::vector<double>& values) {
    run.logger.log_histogram(key, LogHistogram::of(at::tensor(values)), 7);
    run.remote.flush();
  };
  log("whole", {1, 2});
  CHECK(warnings.texts.empty());
  log("part", {1, NAN, 2, INFINITY});
  log("none", {NAN});
  run.close();
  REQUIRE(warnings.texts.size() == 1);
  CHECK(warnings.texts[0] ==
        "Remote: part, batch 7: 2 values are infinite or not a number, and are left out of the histogram; later ones "
        "are not reported");
}

TEST_CASE("BackgroundLogger writes every record once, in order, with its tensors read") {
  Run run;
  run.logger.log_hyperparameters({{"h", true}});
  run.logger.log_metrics({{"a", at::full({}, 2.5)}, {"b", std::int64_t{3}}}, 4);
  run.logger.log_images("i", {.images = at::ones({2, 3})});
  run.logger.log_table("t", {{"c"}, {}});  // the writer does not take tables
  run.logger.log_histogram("g", LogHistogram::of(at::arange(3)));
  run.remote.flush();
  CHECK(run.script->written == std::vector<std::string>{"0 h 1", "4 a 2.5", "4 b 3", "0 i 6", "0 g Double"});
  run.close();
  CHECK(run.script->gone);
}

TEST_CASE("A logger without a writer is an error that names it") {
  struct Forgetful final : BackgroundLogger {
    Forgetful() : BackgroundLogger("Forgetful", {}) {}
    std::shared_ptr<RecordWriter> make_writer(const State&) override { return nullptr; }
  };
  Forgetful forgetful;
  const State state;
  Logger logger(state, {&forgetful});
  CHECK_THROWS_WITH_AS(forgetful.init(state, logger), "Forgetful: make_writer() has returned no writer", ConfigError);
}

TEST_CASE("A logger that derives from BackgroundLogger leaves out entries of a record") {
  class Filtering final : public BackgroundLogger {
   public:
    explicit Filtering(std::shared_ptr<Script> script)
        : BackgroundLogger("Filtering", {}), script_(std::move(script)) {}
    void log_record(const Record& record, const State& state) override {
      BackgroundLogger::log_record(record.with(record.entries().first(1)), state);
    }

   private:
    std::shared_ptr<RecordWriter> make_writer(const State&) override { return std::make_shared<Writer>(script_); }
    const std::shared_ptr<Script> script_;
  };
  const auto some = std::make_shared<Script>(), all = std::make_shared<Script>();
  Filtering filtering(some);
  Remote remote(all, {});
  const State state;
  Logger logger(state, {&filtering, &remote});
  logger.log_metrics({{"a", 1.0}, {"b", 2.0}}, 7);
  filtering.close(state, logger);
  remote.close(state, logger);
  CHECK(some->written == std::vector<std::string>{"7 a 1"});
  CHECK(all->written == std::vector<std::string>{"7 a 1", "7 b 2"});
}

TEST_CASE("A number that is changed after it was logged is written as it was") {
  Run run;
  at::Tensor loss = at::full({}, 2.5);
  run.logger.log_metrics({{"a", loss}}, 4);
  loss.fill_(7);
  run.close();
  CHECK(run.script->written == std::vector<std::string>{"4 a 2.5"});
}

TEST_CASE("BackgroundLogger writes thousands of records that arrive at once") {
  Run run({.flush_interval = 3600s});
  for (std::int64_t i = 0; i < 9'001; ++i) run.log(i, i % 3 == 0 ? "a" : "b");
  run.close();
  REQUIRE(run.script->written.size() == 9'001);
  for (std::size_t i = 0; i < 9'001; ++i) CHECK(run.script->written[i] == join(i, i % 3 == 0 ? " a " : " b ", i));
}

TEST_CASE("The end of an epoch makes BackgroundLogger write, but short epochs do not each") {
  Run run({.flush_interval = 3600s});
  std::atomic<int> written = 0;
  run.script->at_record = [&](std::string_view) { ++written; };
  const auto begin = std::chrono::steady_clock::now();
  for (std::int64_t epoch = 1; epoch <= 1000; ++epoch) {
    run.log(epoch);
    run.remote.epoch_end(run.state, run.logger);
    while (epoch == 1 && written == 0) std::this_thread::yield();
  }
  if (std::chrono::steady_clock::now() - begin < 1s) CHECK(written == 1);
  run.close();
  CHECK(written == 1000);
}

TEST_CASE("BackgroundLogger that is destroyed without close() writes what it had") {
  std::shared_ptr<Script> script;
  {
    Run run({.flush_interval = 3600s});
    script = run.script;
    run.log(1);
  }
  CHECK(script->written == std::vector<std::string>{"1 a 1"});
}

TEST_CASE("BackgroundLogger warns of a failing writer once, and says at the end how many records are missing") {
  const test::Warnings warnings;
  Run run;
  run.script->at_record = [](std::string_view key) {
    if (key == "bad") throw Error("the line is down");
  };
  for (const char* key : {"a", "bad", "bad", "a"}) {
    run.log(1, key);
    run.remote.flush();
  }
  CHECK(run.script->written.size() == 2);
  CHECK(warnings.texts ==
        std::vector<std::string>{
            "Remote: the line is down; training continues, and records are dropped until writing works again"});
  run.close();
  REQUIRE(warnings.texts.size() == 2);
  CHECK(warnings.texts[1] == "Remote: 2 records could not be written and are missing in there");
}

TEST_CASE("Any exception of a writer counts as on_failure says") {
  const std::vector<std::function<void()>> throwing = {
      [] { throw std::runtime_error("the line is down"); },
      [] { TORCH_CHECK(false, "the line is down"); },
      [] { throw std::bad_alloc(); },
      [] { throw 42; },
  };
  for (const auto& fail : throwing) {
    const test::Warnings warnings;
    Run run;
    run.script->at_record = [&](std::string_view key) {
      if (key == "bad") fail();
    };
    run.script->at_close = fail;
    for (const char* key : {"a", "bad", "a"}) {
      run.log(1, key);
      run.remote.flush();
    }
    CHECK(run.script->written.size() == 2);
    REQUIRE(warnings.texts.size() == 1);
    CHECK(warnings.texts[0].starts_with("Remote: "));
    CHECK(warnings.texts[0].find("Exception raised from") == std::string::npos);  // libtorch's stack
    CHECK(warnings.texts[0].find('\n') == std::string::npos);
    run.close();
    CHECK(warnings.say("Remote: 1 records could not be written and are missing in there"));
    Run strict({.on_failure = LogFailure::FAIL});
    strict.script->at_record = [&](std::string_view) { fail(); };
    strict.log(1);
    CHECK_THROWS(strict.remote.flush());
    strict.close();
  }
}

TEST_CASE("A record whose tensors cannot be read is missing alone") {
  const test::Warnings warnings;
  Run run({.flush_interval = 3600s});
  run.log(1);
  run.logger.log_images("i", {.images = at::empty({2, 3}, at::kMeta)});
  run.log(2);
  run.remote.flush();
  run.close();
  CHECK(run.script->written == std::vector<std::string>{"1 a 1", "2 a 2"});
  CHECK(warnings.say("Remote: 1 records could not be written and are missing in there"));
}

TEST_CASE("A record that cannot be read and those that cannot be written are each counted once") {
  const test::Warnings warnings;
  Run run({.flush_interval = 3600s});
  run.script->at_record = [](std::string_view) { throw Error("the line is down"); };
  run.log(1);
  run.logger.log_images("i", {.images = at::empty({2, 3}, at::kMeta)});
  run.log(2);
  run.close();
  CHECK(warnings.say("Remote: 3 records could not be written and are missing in there"));
}

TEST_CASE("BackgroundLogger says so when it drops the first record") {
  const test::Warnings warnings;
  Run run({.capacity = 1, .when_full = WhenFull::DROP_NEWEST, .flush_interval = 0s});
  Gate gate;
  run.script->at_record = [&](std::string_view) { gate.pass(); };
  run.log(0);
  gate.wait_until_reached();
  for (std::int64_t i = 1; i <= 2; ++i) run.log(i);
  CHECK(warnings.say("some are dropped"));
  gate.open();
  run.close();
}

TEST_CASE("BackgroundLogger that is to fail throws at a later call, and close() does not repeat what was thrown") {
  for (const bool seen : {true, false}) {
    CAPTURE(seen);
    Run run({.on_failure = LogFailure::FAIL});
    run.script->at_record = [](std::string_view) { throw Error("the line is down"); };
    run.log(1);
    if (seen) CHECK_THROWS_WITH_AS(run.remote.flush(), "the line is down", Error);
    if (seen)
      CHECK_NOTHROW(run.close());
    else
      CHECK_THROWS_WITH_AS(run.close(), "the line is down", Error);
    CHECK_NOTHROW(run.close());
  }
}

TEST_CASE("BackgroundLogger reports an error of the end of writing") {
  for (const LogFailure on_failure : {LogFailure::CONTINUE, LogFailure::FAIL}) {
    const test::Warnings warnings;
    Run run({.on_failure = on_failure});
    run.script->at_close = [] { throw Error("no end"); };
    run.log(1);
    if (on_failure == LogFailure::FAIL) {
      CHECK_THROWS_WITH_AS(run.close(), "no end", Error);
    } else {
      CHECK_NOTHROW(run.close());
      CHECK(warnings.say("no end"));
    }
  }
}

TEST_CASE("BackgroundLogger with a writer that blocks drops records as told, and says so once and at the end") {
  for (const WhenFull when_full : {WhenFull::DROP_NEWEST, WhenFull::DROP_OLDEST}) {
    const test::Warnings warnings;
    Run run({.capacity = 2, .when_full = when_full, .flush_interval = 0s});
    Gate gate;
    run.script->at_record = [&](std::string_view) { gate.pass(); };
    run.log(0);
    gate.wait_until_reached();
    for (std::int64_t i = 1; i <= 6; ++i) run.log(i);
    gate.open();
    run.close();
    const bool newest = when_full == WhenFull::DROP_NEWEST;
    CHECK(run.script->written == (newest ? std::vector<std::string>{"0 a 0", "1 a 1", "2 a 2"}
                                         : std::vector<std::string>{"0 a 0", "5 a 5", "6 a 6"}));
    REQUIRE(warnings.texts.size() == 2);
    CHECK(warnings.texts[0] ==
          "Remote: there is written more slowly than records arrive; more than 2 wait, and some are dropped");
    CHECK(warnings.texts[1] ==
          "Remote: 4 records were dropped because they arrived faster than there could be written");
  }
}

TEST_CASE("BackgroundLogger with a slow writer makes training wait, and loses nothing") {
  Run run({.capacity = 1, .flush_interval = 0s});
  run.script->at_record = [](std::string_view) {
    for (int i = 0; i < 10; ++i) std::this_thread::yield();
  };
  for (std::int64_t i = 0; i < 500; ++i) run.log(i);
  run.close();
  REQUIRE(run.script->written.size() == 500);
  CHECK(run.script->written.back() == "499 a 499");
}

TEST_CASE("BackgroundLogger waits for a writer that hangs no longer than flush_timeout") {
  const test::Warnings warnings;
  const auto gate = std::make_shared<Gate>();
  std::shared_ptr<Script> script;
  {
    Run run({.flush_interval = 0s, .flush_timeout = 1ms});
    script = run.script;
    run.script->at_record = [gate](std::string_view) { gate->pass(); };
    run.log(0);
    gate->wait_until_reached();
    run.log(1);
    run.remote.flush();
    CHECK(warnings.say("Remote: there could not be written within 0.001 s; training continues"));
    run.close();
    CHECK(warnings.say("Remote: 2 records are not yet written to there and may be missing"));
    CHECK(warnings.texts.size() == 2);
  }
  gate->open();
  while (!script->gone) std::this_thread::yield();  // the thread ends, with all that it uses
  CHECK(script->written == std::vector<std::string>{"0 a 0"});
}

TEST_CASE("BackgroundLogger in a forked child refuses records, and is closed without writing") {
  Run run;
  run.log(1);
  const int status = test::status_of_child([&] {
    try {
      run.log(2);
    } catch (const Error&) {
      return run.close();
    }
    throw Error("it did not refuse");
  });
  CHECK(test::ended_well(status));
  run.close();
  CHECK(run.script->written.size() == 1);
}

TEST_CASE("BackgroundLogger rejects a tensor that is not a number, and continues") {
  Run run;
  CHECK_THROWS_AS(run.logger.log_metrics({{"odd", at::zeros({3})}}), DataError);
  run.log(1);
  run.close();
  CHECK(run.script->written.size() == 1);
}

TEST_CASE("BackgroundLogger rejects options out of range") {
  const auto script = std::make_shared<Script>();
  const Seconds nan{std::numeric_limits<double>::quiet_NaN()};
  for (const BackgroundOptions& options :
       {BackgroundOptions{.capacity = 0}, BackgroundOptions{.flush_interval = -1s},
        BackgroundOptions{.flush_interval = nan}, BackgroundOptions{.flush_timeout = -1s},
        BackgroundOptions{.flush_timeout = nan}})
    CHECK_THROWS_AS(Remote(script, options), ConfigError);
}

}  // namespace
}  // namespace composer::loggers::background_logger_test
