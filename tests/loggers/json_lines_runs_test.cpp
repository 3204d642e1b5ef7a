// The log of a run that several processes train, one after the other or at once.
#include <filesystem>
#include <fstream>
#include <string>

#include "composer/core/error.h"
#include "composer/loggers/json_lines_logger.h"
#include "tests/formats/bytes.h"
#include "tests/support/doctest.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::loggers::json_lines_runs_test {
namespace {

namespace fs = std::filesystem;
using namespace test;

TrainerOptions options_in(const Folder& folder, bool overwrite = false) {
  TrainerOptions options = tiny_options();
  options.eval_dataloader = tiny_loader(4, 4);
  options.save_folder = folder / "ck";
  options.save_interval = "2ba";
  options.save_async = false;
  options.loggers = {JsonLinesLogger({.path = folder / "log.jsonl", .overwrite = overwrite})};
  return options;
}

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t number = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++number;
  return number;
}

TEST_CASE("A second Trainer of a run that is being trained changes nothing in its log: made, evaluating, or refused") {
  const Folder folder;
  const auto log = [&] { return text_of(folder / "log.jsonl"); };
  Trainer first(options_in(folder));
  first.begin();
  for (int i = 0; i < 3; ++i) REQUIRE(first.step());
  first.logger().flush();
  const std::string before = log();
  REQUIRE(before.find("\"batch\":2,") != std::string::npos);
  {
    Trainer second(options_in(folder));
    REQUIRE_FALSE(second.resumed_from().empty());
    CHECK(log() == before);
    second.eval();
    second.logger().flush();
    CHECK(log() == before);
    CHECK_THROWS_WITH_AS(second.fit(), doctest::Contains("is in use"), ConfigError);
  }
  CHECK(log() == before);
  while (first.step()) {
  }
  first.end();
  first.logger().flush();
  CHECK(log().starts_with(before));
  CHECK(log().size() > before.size());
}

// One that ends before its first checkpoint.
std::string log_of_first_batch(TrainerOptions options, const Folder& folder) {
  Trainer trainer(std::move(options));
  trainer.begin();
  REQUIRE(trainer.step());
  trainer.logger().flush();
  return text_of(folder / "log.jsonl");
}

TEST_CASE(
    "A run that died before its first checkpoint is started again; its log begins anew, the earlier one is kept") {
  const Folder folder;
  const std::string before = log_of_first_batch(options_in(folder), folder);
  REQUIRE(before.starts_with("{\"run_name\":\"tiny\",\"hyperparameters\":{"));
  const std::string second = log_of_first_batch(options_in(folder), folder);
  CHECK(text_of(folder / "log.jsonl.1") == before);
  const Warnings warnings;
  CHECK(error_of([&] { Trainer(options_in(folder)).fit(); }) == "no error");
  CHECK(warnings.say("log.jsonl.2"));
  CHECK(text_of(folder / "log.jsonl.1") == before);
  CHECK(text_of(folder / "log.jsonl.2") == second);
  CHECK(count(text_of(folder / "log.jsonl"), "\"loss/train/total\"") == 4);
  TrainerOptions longer = options_in(folder);
  longer.max_duration = "2ep";
  CHECK(error_of([&] { Trainer(std::move(longer)).fit(); }) == "no error");
  CHECK(count(text_of(folder / "log.jsonl"), "\"loss/train/total\"") == 8);
  CHECK_FALSE(fs::exists(folder / "log.jsonl.3"));
}

TEST_CASE("A run that was killed while it wrote its first line, or before, is started again") {
  for (const std::uintmax_t bytes : {0, 1, 12, 40}) {
    CAPTURE(bytes);
    const Folder folder;
    log_of_first_batch(options_in(folder), folder);
    fs::resize_file(folder / "log.jsonl", bytes);
    CHECK(error_of([&] { Trainer(options_in(folder)).fit(); }) == "no error");
    CHECK(fs::file_size(folder / "log.jsonl.1") == bytes);
    CHECK(count(text_of(folder / "log.jsonl"), "\"loss/train/total\"") == 4);
  }
}

TEST_CASE("Until a run that starts again trains, it changes nothing in the log that an earlier process has begun") {
  for (const bool overwrite : {false, true}) {
    CAPTURE(overwrite);
    const Folder folder;
    Trainer first(options_in(folder, overwrite));
    first.begin();
    REQUIRE(first.step());
    first.logger().flush();
    const std::string before = text_of(folder / "log.jsonl");
    const Warnings warnings;
    {
      Trainer second(options_in(folder, overwrite));
      REQUIRE(second.resumed_from().empty());
      second.eval();
      CHECK_THROWS_WITH_AS(second.fit(), doctest::Contains("is in use"), ConfigError);
    }
    CHECK(warnings.say("records are not written"));
    CHECK(text_of(folder / "log.jsonl") == before);
    CHECK_FALSE(fs::exists(folder / "log.jsonl.1"));
  }
}

TEST_CASE("The log of another run, or of a run that cannot be resumed, is an error as any other file, and stays") {
  for (const bool other_run : {true, false}) {
    const Folder folder;
    const std::string before = log_of_first_batch(options_in(folder), folder);
    TrainerOptions options = options_in(folder);
    if (other_run)
      options.run_name = "other";
    else
      options.save_folder.clear();
    CHECK(error_of([&] { Trainer(std::move(options)).fit(); }).find("log.jsonl exists") != std::string::npos);
    CHECK(text_of(folder / "log.jsonl") == before);
  }
}

}  // namespace
}  // namespace composer::loggers::json_lines_runs_test
