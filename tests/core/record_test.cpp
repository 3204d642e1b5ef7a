#include "composer/core/record.h"

#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/core/logger.h"
#include "composer/core/state.h"
#include "composer/util/wall_clock.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"

namespace composer::record_test {
namespace {

struct Keeper final : LoggerDestination {
  void log_record(const Record& record, const State&) override { kept.push_back(record.keep()); }
  std::vector<std::shared_ptr<const Record>> kept;
};

// Keeps the first entry alone.
struct Filtering final : LoggerDestination {
  void log_record(const Record& record, const State&) override {
    kept.push_back(record.with(record.entries().first(1)).keep());
  }
  std::vector<std::shared_ptr<const Record>> kept;
};

// Writes down which method was called.
struct ByMethods final : LoggerDestination {
  explicit ByMethods(std::vector<std::string>& all, std::string begin = "") : calls(all), name(std::move(begin)) {}
  void log_metrics(std::span<const LogEntry> metrics, std::int64_t step, const State&) override {
    if (metrics.front().key == "bad") throw Error("no");
    for (const auto& [key, value] : metrics)
      calls.push_back(join(name, "metric ", key, ' ', to_number(value), ' ', step));
  }
  void log_hyperparameters(std::span<const LogEntry> hyperparameters, const State&) override {
    for (const auto& [key, value] : hyperparameters) calls.push_back(join(name, "hyperparameter ", key));
  }
  void log_images(std::string_view key, const LogImages&, std::int64_t step, const State&) override {
    calls.push_back(join(name, "images ", key, ' ', step));
  }
  void log_table(std::string_view key, const LogTable&, std::int64_t step, const State&) override {
    calls.push_back(join(name, "table ", key, ' ', step));
  }
  void log_histogram(std::string_view key, const LogHistogram&, std::int64_t step, const State&) override {
    calls.push_back(join(name, "histogram ", key, ' ', step));
  }
  void upload_file(const LogFile& file, const State&) override { calls.push_back(join(name, "file ", file.name)); }
  void log_traces(std::span<const LogEntry> traces, const State& state) override {
    calls.push_back(join(name, "trace ", traces.front().key, ' ', state.timestamp.batch));
  }
  bool wants_traces() const override { return true; }
  std::vector<std::string>& calls;
  const std::string name;
};

TEST_CASE("Destinations that keep what a call logs have one object, and one that leaves out entries has its own") {
  State state;
  state.timestamp.batch = 3;
  state.timestamp.token = 5;
  Keeper first, second;
  Filtering filtering;
  Logger logger(state, {&first, &filtering, &second});
  const std::vector<LogEntry> entries = {{"a", at::full({}, 2.5)}, {"bc", std::string("text")}};
  const double before = seconds_since_1970();
  logger.log_metrics(entries);
  logger.log_metrics(entries, 7);  // at the same address
  const double after = seconds_since_1970();
  const Timestamp logged = state.timestamp;
  state.timestamp.batch = 4;
  while (seconds_since_1970() <= after) {  // later than both calls
  }
  for (const std::size_t call : {0, 1}) {
    const Record& record = *first.kept[call];
    CHECK(first.kept[call] == second.kept[call]);
    CHECK(filtering.kept[call] != first.kept[call]);
    CHECK(filtering.kept[call]->entries().size() == 1);
    CHECK(filtering.kept[call]->step() == record.step());
    CHECK(record.kind() == Record::Kind::METRICS);
    CHECK(record.step() == (call == 0 ? 3 : 7));
    CHECK(record.timestamp() == logged);
    CHECK(record.wall_time() >= before);
    CHECK(record.wall_time() <= after);
    CHECK(filtering.kept[call]->wall_time() >= before);
    CHECK(filtering.kept[call]->wall_time() <= after);
    REQUIRE(record.entries().size() == 2);
    CHECK(record.entries()[0].key == "a");
    CHECK(std::get<double>(record.entries()[0].value) == 2.5);
    CHECK(record.entries()[1].key == "bc");
    CHECK(std::get<std::string>(record.entries()[1].value) == "text");
    CHECK(&record.on_host() == &record);  // it is there
    CHECK(record.keep() == first.kept[call]);
  }
  CHECK(first.kept[0] != first.kept[1]);
}

TEST_CASE("Kept records outlive the logger, the call's keys and later writes to the tensors") {
  Keeper keeper;
  {
    const State state;
    Logger logger(state, {&keeper});
    at::Tensor loss = at::zeros({});
    for (std::int64_t i = 0; i < 100; ++i) {
      loss.fill_(i);
      const std::string key = join(std::string(i % 7 * 20, 'k'), i);
      logger.log_metrics({{key, loss}}, i);
    }
  }
  std::thread([&] {
    for (std::int64_t i = 0; i < 100; ++i) {
      const auto record = std::exchange(keeper.kept[static_cast<std::size_t>(i)], nullptr);
      REQUIRE(record->entries().size() == 1);
      CHECK(record->entries()[0].key == join(std::string(i % 7 * 20, 'k'), i));
      CHECK(to_number(record->entries()[0].value) == static_cast<double>(i));
    }
  }).join();
}

TEST_CASE("Contents are kept once, and read on the host once for all") {
  const State state;
  Keeper first, second;
  Logger logger(state, {&first, &second});
  logger.log_table("t", {{"c"}, {{at::full({}, 2.5)}}}, 2);
  logger.log_histogram("h", LogHistogram::of(at::arange(3)));
  logger.log("i", LogImages{.images = at::ones({3, 2}).t()});
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(first.kept[i] == second.kept[i]);
    CHECK(first.kept[i]->kind() == Record::Kind::CONTENT);
    CHECK(first.kept[i]->entries().empty());
    CHECK(&first.kept[i]->on_host() == &second.kept[i]->on_host());
    CHECK(first.kept[i]->on_host().keep() != first.kept[i]);
  }
  const Record& table = first.kept[0]->on_host();
  CHECK(std::holds_alternative<at::Tensor>(first.kept[0]->get<LogTable>()->rows[0][0]));
  CHECK(std::get<double>(table.get<LogTable>()->rows[0][0]) == 2.5);
  CHECK(table.get<LogHistogram>() == nullptr);
  CHECK(table.key() == "t");
  CHECK(table.step() == 2);
  CHECK(first.kept[1]->on_host().get<LogHistogram>()->counts.is_floating_point());
  CHECK(first.kept[2]->on_host().get<LogImages>()->images.is_contiguous());
  const std::shared_ptr<const Record> on_host = first.kept[0]->on_host().keep();
  first.kept.clear(), second.kept.clear();
  CHECK(on_host->key() == "t");  // it keeps the record that it is part of
}

TEST_CASE("Who keeps a content has a copy of its own, and who only looks at it costs none") {
  struct Looking final : LoggerDestination {
    void log_record(const Record& record, const State&) override { seen = record.get<LogTable>(); }
    const LogTable* seen = nullptr;
  };
  const State state;
  Looking looking;
  Keeper keeper;
  Logger logger(state, {&looking, &keeper});
  LogTable table{{"c"}, {{1.5}}};
  logger.log_table("t", table);
  CHECK(looking.seen == &table);
  table.rows.front().front() = 2.5;
  CHECK(std::get<double>(keeper.kept.front()->get<LogTable>()->rows.front().front()) == 1.5);
  CHECK(keeper.kept.front()->get<LogImages>() == nullptr);
}

TEST_CASE(
    "Of data that a destination rejects, the one who has logged it is told if that is no number, else whose it is") {
  struct Rejecting final : LoggerDestination {
    void log_record(const Record& record, const State&) override {
      const auto kept = record.keep();
      throw DataError("Logger: not ", kept->entries().front().key);
    }
  };
  const State state;
  Rejecting rejecting;
  Logger logger(state, {&rejecting});
  CHECK_THROWS_WITH_AS(logger.log_metrics({{"a", 1.0}, {"odd", at::zeros(3)}}),
                       "Logger: odd must be one real number, got a tensor of shape [3] and type Float", DataError);
  try {
    logger.log_metrics({{"a", 1.0}, {"b", at::zeros({})}});
    FAIL("it is accepted");
  } catch (const DataError& error) {
    CHECK(std::string(error.what()).find("Rejecting failed to log a and others") != std::string::npos);
    CHECK_MESSAGE(describe(error).find("Logger: not a") != std::string::npos, describe(error));
  }
}

TEST_CASE("A logger with the methods for each kind gets every record by its method") {
  const test::Folder folder;
  std::ofstream(folder / "f") << "x";
  const std::string file = folder / "f";
  State state;
  state.timestamp.batch = 3;
  std::vector<std::string> calls;
  ByMethods destination(calls);
  Logger logger(state, {&destination});
  logger.log_metrics({{"a", at::ones({})}, {"b", 2.0}}, 7);
  logger.log_hyperparameters({{"p", true}});
  logger.log_images("i", {.images = at::ones({2, 2})});
  logger.log_table("t", {{"c"}, {}}, 8);
  logger.log_histogram("h", LogHistogram::of(at::ones({3})));
  logger.upload_file({.path = file, .name = "{batch}.txt"});
  logger.log("g.txt", LogFile{.path = file, .name = ""});
  const LogEntry trace{"EMA", std::int64_t{1}};
  logger.log_traces(std::span(&trace, 1));
  CHECK(calls == std::vector<std::string>{"metric a 1 7", "metric b 2 7", "hyperparameter p", "images i 3", "table t 8",
                                          "histogram h 3", "file 3.txt", "file g.txt", "trace EMA 3"});
}

TEST_CASE("Destinations get records in their order, and none after the one that throws, but later calls all") {
  const State state;
  std::vector<std::string> calls;
  Keeper before, after;
  ByMethods first(calls, "1 "), second(calls, "2 ");
  Logger logger(state, {&before, &first, &second, &after});
  logger.log_metrics({{"a", 1.0}});
  CHECK_THROWS_WITH_AS(logger.log_metrics({{"bad", 1.0}}), "no", Error);
  logger.log_metrics({{"b", 1.0}});
  CHECK(calls == std::vector<std::string>{"1 metric a 1 0", "2 metric a 1 0", "1 metric b 1 0", "2 metric b 1 0"});
  CHECK(before.kept.size() == 3);
  REQUIRE(after.kept.size() == 2);
  CHECK(after.kept[0] == before.kept[0]);
  CHECK(after.kept[1] == before.kept[2]);
}

TEST_CASE("A record with a tensor that is not a number cannot be kept, and the next one can") {
  const State state;
  Keeper keeper;
  Logger logger(state, {&keeper});
  CHECK_THROWS_AS(logger.log_metrics({{"a", 1.0}, {"odd", at::zeros({3})}}), DataError);
  CHECK_THROWS_AS(logger.log_metrics({{"none", at::Tensor()}}), DataError);
  logger.log_metrics({{"a", 1.0}});
  REQUIRE(keeper.kept.size() == 1);
  CHECK(keeper.kept[0]->entries()[0].key == "a");
}

TEST_CASE("A logger that logs while it gets a record does not disturb what others keep") {
  struct Nesting final : LoggerDestination {
    void log_record(const Record& record, const State&) override {
      if (record.entries().front().key != "outer") return;
      logger->log_metrics({{"inner", 1.0}});
    }
    Logger* logger = nullptr;
  };
  const State state;
  Keeper first, second;
  Nesting nesting;
  Logger logger(state, {&first, &nesting, &second});
  nesting.logger = &logger;
  logger.log_metrics({{"outer", 1.0}});
  REQUIRE(first.kept.size() == 2);
  REQUIRE(second.kept.size() == 2);
  CHECK(first.kept[0] == second.kept[1]);
  CHECK(first.kept[1] == second.kept[0]);
  CHECK(first.kept[0]->entries()[0].key == "outer");
}

TEST_CASE("A record that cannot be read throws at each try") {
  const State state;
  Keeper keeper;
  Logger logger(state, {&keeper});
  logger.log_images("i", {.images = at::empty({2, 3}, at::kMeta)});
  REQUIRE(keeper.kept.size() == 1);
  for (int i = 0; i < 2; ++i) CHECK_THROWS(keeper.kept[0]->on_host());
}

}  // namespace
}  // namespace composer::record_test
