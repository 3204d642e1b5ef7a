#include "composer/loggers/json_lines_logger.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include <ATen/ATen.h>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "composer/core/error.h"
#include "composer/core/state.h"
#include "tests/support/folder.h"

namespace composer::loggers {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using Json = nlohmann::json;

struct Folder : test::Folder {
  std::string file(const std::string& name = "a.jsonl") const { return *this / name; }
};

struct Run {
  explicit Run(JsonLinesLoggerOptions options) : json(std::move(options)) {}
  State state;
  JsonLinesLogger json;
  Logger logger{state, {&json}};
};

std::string read(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return std::move(text).str();
}

std::vector<Json> lines(const std::string& path) {
  std::vector<Json> objects;
  std::istringstream text(read(path));
  for (std::string line; std::getline(text, line);) objects.push_back(Json::parse(line));
  return objects;
}

TEST_CASE("JsonLinesLogger writes an object for each call, hyperparameters where they were logged") {
  const Folder folder;
  Run run({.path = folder.file()});
  run.json.init(run.state, run.logger);
  run.logger.log_hyperparameters({{"lr", 0.1}, {"name", std::string("x")}});
  run.logger.log_metrics({{"time/epoch", std::int64_t{0}}});
  run.state.timestamp = Timestamp{}.to_next_batch(4, 0, 1500ms).to_next_epoch();
  run.logger.log_metrics({{"loss/train/total", at::tensor(0.25F)}, {"ok", true}, {"why", std::string("so")}}, 7);
  run.json.close(run.state, run.logger);
  CHECK(read(folder.file()) ==
        "{\"hyperparameters\":{\"lr\":0.1,\"name\":\"x\"}}\n"
        "{\"step\":0,\"epoch\":0,\"batch\":0,\"time\":0,\"time/epoch\":0}\n"
        "{\"step\":7,\"epoch\":1,\"batch\":1,\"time\":1.5,\"loss/train/total\":0.25,\"ok\":true,\"why\":\"so\"}\n");
}

TEST_CASE("JsonLinesLogger writes lines that any reader of JSON understands, whatever the keys and values are") {
  const Folder folder;
  const std::string odd = "a \"quoted\"\nkey\t\\ \x01 \xff \xc3\xa4";
  {
    Run run({.path = folder.file()});
    run.logger.log_metrics({{odd, odd}, {"", 1.0}, {"step", 2.0}, {"time", std::int64_t{3}}});
    run.logger.log_metrics({{"nan", std::nan("")},
                            {"inf", HUGE_VAL},
                            {"-inf", at::tensor(-HUGE_VALF)},
                            {"huge", std::numeric_limits<double>::max()},
                            {"tiny", std::numeric_limits<double>::denorm_min()},
                            {"third", 1.0 / 3},
                            {"lowest", std::numeric_limits<std::int64_t>::min()}});
    run.logger.log_hyperparameters({});
    run.logger.log_hyperparameters({{odd, odd}});
    run.logger.log_metrics({});
  }  // closed by nobody
  const auto objects = lines(folder.file());
  REQUIRE(objects.size() == 5);
  const std::string replaced = "a \"quoted\"\nkey\t\\ \x01 \xef\xbf\xbd \xc3\xa4";
  CHECK(objects[0].at(replaced) == replaced);
  CHECK(objects[0].at("") == 1.0);
  CHECK(objects[0].at("step") == 0);
  CHECK(objects[0].at("metric/step") == 2.0);
  CHECK(objects[0].at("metric/time") == 3);
  CHECK(objects[1].at("nan") == "nan");
  CHECK(objects[1].at("inf") == "inf");
  CHECK(objects[1].at("-inf") == "-inf");
  CHECK(objects[1].at("huge").get<double>() == std::numeric_limits<double>::max());
  CHECK(objects[1].at("tiny").get<double>() == std::numeric_limits<double>::denorm_min());
  CHECK(objects[1].at("third").get<double>() == 1.0 / 3);
  CHECK(objects[1].at("lowest").get<std::int64_t>() == std::numeric_limits<std::int64_t>::min());
  CHECK(objects[2] == Json{{"hyperparameters", Json::object()}});
  CHECK(objects[3]["hyperparameters"][replaced] == replaced);
  CHECK(objects[4].size() == 4);
}

TEST_CASE("JsonLinesLogger writes every line in order, more of them than it keeps waiting") {
  const Folder folder;
  Run run({.path = folder.file(), .flush_interval = 0s});
  for (std::int64_t i = 0; i < 200'000; ++i) run.logger.log_metrics({{"i", i}});
  run.json.flush();
  std::ifstream file(folder.file());
  std::int64_t count = 0;
  bool in_order = true;
  for (std::string line; std::getline(file, line); ++count)
    in_order &= line.ends_with("\"i\":" + std::to_string(count) + "}");
  CHECK(count == 200'000);
  CHECK(in_order);
}

TEST_CASE("JsonLinesLogger has all of a fit in the file at FIT_END") {
  const Folder folder;
  Run run({.path = folder.file(), .flush_interval = 1h});
  run.logger.log_metrics({{"a", 1.0}});
  run.json.fit_end(run.state, run.logger);
  CHECK(lines(folder.file()).size() == 1);
  run.logger.log_metrics({{"a", 2.0}});
  run.json.flush();
  CHECK(lines(folder.file()).size() == 2);
}

TEST_CASE("JsonLinesLogger refuses an existing file unless told to append or to overwrite") {
  const Folder folder;
  const std::string text = "{\"step\":1}\n{\"st";  // whoever wrote it was killed
  std::ofstream(folder.file()) << text;
  Run refused({.path = folder.file()});
  CHECK_THROWS_WITH_AS(
      refused.json.init(refused.state, refused.logger),
      ("JsonLinesLogger: " + folder.file() + " exists; choose another path, or append to it, or overwrite it").c_str(),
      ConfigError);
  CHECK(read(folder.file()) == text);

  Run appended({.path = folder.file(), .append = true});
  appended.logger.log_metrics({{"a", 1.0}});
  appended.json.flush();
  CHECK(read(folder.file()) == text + "\n{\"step\":0,\"epoch\":0,\"batch\":0,\"time\":0,\"a\":1}\n");

  Run overwritten({.path = folder.file(), .overwrite = true});
  overwritten.json.init(overwritten.state, overwritten.logger);
  CHECK(read(folder.file()).empty());
}

TEST_CASE("JsonLinesLogger closed twice, or used in a second run, adds to its file") {
  const Folder folder;
  Run run({.path = folder.file()});
  for (int fit = 0; fit < 2; ++fit) {
    run.json.init(run.state, run.logger);
    run.logger.log_metrics({{"fit", std::int64_t{fit}}});
    run.json.close(run.state, run.logger);
    run.json.close(run.state, run.logger);
    run.json.flush();
  }
  const auto objects = lines(folder.file());
  REQUIRE(objects.size() == 2);
  CHECK(objects[1]["fit"] == 1);
}

TEST_CASE("JsonLinesLogger replaces {run_name} and makes the folders") {
  const Folder folder;
  Run run({.path = folder.file("{run_name}/of {run_name}/a.jsonl")});
  CHECK_THROWS_AS(run.json.init(run.state, run.logger), ConfigError);  // it has no name
  run.state.run_name = "my-run";
  run.json.init(run.state, run.logger);
  CHECK(fs::exists(folder.path() / "my-run" / "of my-run" / "a.jsonl"));
}

TEST_CASE("JsonLinesLogger refuses bad options") {
  CHECK_THROWS_WITH_AS(JsonLinesLogger({.path = ""}), "JsonLinesLogger: path must not be empty", ConfigError);
  CHECK_THROWS_WITH_AS(JsonLinesLogger({.path = "{rank}/a"}),
                       "JsonLinesLogger: path may have the placeholder {run_name} only, got {rank}/a", ConfigError);
  CHECK_THROWS_WITH_AS(JsonLinesLogger({.path = "a", .append = true, .overwrite = true}),
                       "JsonLinesLogger: append and overwrite exclude each other, got both for a", ConfigError);
  CHECK_THROWS_WITH_AS(JsonLinesLogger({.path = "a", .flush_interval = -1s}),
                       "JsonLinesLogger: flush_interval must be from 0 to 86400 seconds, got -1", ConfigError);
  CHECK_THROWS_AS(JsonLinesLogger({.path = "a", .flush_interval = Seconds(std::nan(""))}), ConfigError);
  CHECK_NOTHROW(JsonLinesLogger());
}

TEST_CASE("JsonLinesLogger refuses a path that cannot be written at INIT") {
  const Folder folder;
  std::ofstream(folder.file("file")) << "x";
  for (const std::string& path : {folder.file("file/a.jsonl"), folder.path().string()}) {
    CAPTURE(path);
    Run run({.path = path, .append = true});
    CHECK_THROWS_AS(run.json.init(run.state, run.logger), ConfigError);
    CHECK_THROWS_WITH(run.json.init(run.state, run.logger), doctest::Contains(path.c_str()));
  }
}

TEST_CASE("JsonLinesLogger reports a full disk at a call after it, once") {
  Run run({.path = "/dev/full", .append = true});
  run.json.init(run.state, run.logger);
  run.logger.log_metrics({{"a", 1.0}});  // nothing is written yet
  CHECK_THROWS_WITH_AS(run.json.flush(), "JsonLinesLogger: cannot write /dev/full: No space left on device", Error);
  CHECK_THROWS_AS(run.logger.log_metrics({{"a", 2.0}}), Error);
  CHECK_NOTHROW(run.json.close(run.state, run.logger));

  Run unaware({.path = "/dev/full", .append = true});
  unaware.logger.log_metrics({{"a", 1.0}});
  CHECK_THROWS_AS(unaware.json.close(unaware.state, unaware.logger), Error);
  CHECK_NOTHROW(unaware.json.close(unaware.state, unaware.logger));
}

TEST_CASE("JsonLinesLogger refuses a tensor that is no number, and goes on") {
  const Folder folder;
  Run run({.path = folder.file()});
  CHECK_THROWS_AS(run.logger.log_metrics({{"odd", at::zeros({3})}}), DataError);
  run.logger.log_metrics({{"fine", at::zeros({1})}});
  run.json.flush();
  CHECK(lines(folder.file()).size() == 1);
}

}  // namespace
}  // namespace composer::loggers
