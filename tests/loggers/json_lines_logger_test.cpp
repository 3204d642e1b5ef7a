#include "composer/loggers/json_lines_logger.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include <ATen/ATen.h>

#include <nlohmann/json.hpp>

#include "composer/core/error.h"
#include "composer/core/state.h"
#include "composer/core/state_dict.h"
#include "tests/support/doctest.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/folder.h"
#include "tests/support/saved_by.h"
#include "tests/support/text.h"
#include "tests/support/warnings.h"

namespace composer::loggers::json_lines_logger_test {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using Json = nlohmann::json;
using test::saved_by;
using test::text_of;

struct Folder : test::Folder {
  std::string file(const std::string& name = "a.jsonl") const { return *this / name; }
};

struct Run {
  explicit Run(JsonLinesLoggerOptions options) : json(std::move(options)) {}
  State state;
  JsonLinesLogger json;
  Logger logger{state, {&json}};
};

std::vector<Json> lines(const std::string& path) {
  std::vector<Json> objects;
  std::istringstream text(text_of(path));
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
  CHECK(text_of(folder.file()) ==
        "{\"hyperparameters\":{\"lr\":0.1,\"name\":\"x\"}}\n"
        "{\"step\":0,\"epoch\":0,\"batch\":0,\"time\":0,\"time/epoch\":0}\n"
        "{\"step\":7,\"epoch\":1,\"batch\":1,\"time\":1.5,\"loss/train/total\":0.25,\"ok\":true,\"why\":\"so\"}\n");
}

TEST_CASE("JsonLinesLogger writes lines that any reader of JSON understands, whatever the keys and values are") {
  const Folder folder;
  const std::string odd = "a \"quoted\"\nkey\t\\ \x01 \xff \xc3\xa4";
  {
    Run run({.path = folder.file()});
    run.logger.log_metrics({{odd, odd}, {" ", 1.0}, {"step", 2.0}, {"time", std::int64_t{3}}});
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
  CHECK(objects[0].at(" ") == 1.0);
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
  CHECK(text_of(folder.file()) == text);

  {
    Run appended({.path = folder.file(), .append = true});
    appended.logger.log_metrics({{"a", 1.0}});
    appended.json.flush();
  }
  CHECK(text_of(folder.file()) == text + "\n{\"step\":0,\"epoch\":0,\"batch\":0,\"time\":0,\"a\":1}\n");

  Run overwritten({.path = folder.file(), .overwrite = true});
  overwritten.json.init(overwritten.state, overwritten.logger);
  CHECK(text_of(folder.file()).empty());
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
  CHECK_THROWS_WITH_AS(JsonLinesLogger({.path = "{epoch}/a"}),
                       "JsonLinesLogger: the placeholders of path are {run_name} and {rank}, got {epoch}/a",
                       ConfigError);
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

TEST_CASE("JsonLinesLogger that is to fail reports a full disk at a call after it, once") {
  Run run({.path = "/dev/full", .append = true, .on_failure = LogFailure::FAIL});
  run.json.init(run.state, run.logger);
  run.logger.log_metrics({{"a", 1.0}});  // nothing is written yet
  CHECK_THROWS_WITH_AS(run.json.flush(), "JsonLinesLogger: cannot write /dev/full: No space left on device", Error);
  CHECK_THROWS_AS(run.logger.log_metrics({{"a", 2.0}}), Error);
  CHECK_NOTHROW(run.json.close(run.state, run.logger));

  Run unaware({.path = "/dev/full", .append = true, .on_failure = LogFailure::FAIL});
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

TEST_CASE("JsonLinesLogger warns of a full disk once, goes on, and says how many lines are missing") {
  const test::Warnings warnings;
  Run run({.path = "/dev/full", .append = true});
  run.json.init(run.state, run.logger);
  for (std::int64_t i = 0; i < 3; ++i) {
    run.logger.log_metrics({{"i", i}});
    CHECK_NOTHROW(run.json.flush());
  }
  CHECK_NOTHROW(run.json.close(run.state, run.logger));
  REQUIRE(warnings.texts.size() == 2);
  CHECK(warnings.say("cannot write /dev/full: No space left on device; training continues"));
  CHECK(warnings.say("3 lines could not be written and are missing in /dev/full"));
}

TEST_CASE("JsonLinesLogger keeps whole lines alone when the disk is full in the midst of one, and goes on later") {
  const Folder folder;
  const test::Warnings warnings;
  Run run({.path = folder.file()});
  run.logger.log_metrics({{"i", std::int64_t{0}}});
  run.json.flush();
  {
    const test::FileSizeLimit limit(fs::file_size(folder.file()) + 10);
    run.logger.log_metrics({{"i", std::int64_t{1}}});
    run.logger.log_metrics({{"i", std::int64_t{2}}});
    run.json.flush();
  }
  run.logger.log_metrics({{"i", std::int64_t{3}}});
  run.json.close(run.state, run.logger);
  const auto objects = lines(folder.file());
  REQUIRE(objects.size() == 2);
  CHECK(objects[0]["i"] == 0);
  CHECK(objects[1]["i"] == 3);
  CHECK(warnings.say("2 lines"));
}

// A run that resumes: what it opens is decided once the checkpoint has been loaded, and changed once it trains.
struct ResumedRun : Run {
  ResumedRun(JsonLinesLoggerOptions options, const StateDict& checkpoint, bool trains = true)
      : Run(std::move(options)) {
    state.resumes = true;
    json.init(state, logger);
    logger.log_hyperparameters({{"again", true}});
    if (!checkpoint.empty()) {
      StateVisitor visit = StateVisitor::loading(checkpoint, "ck");
      json.visit_state(visit);
    }
    json.after_load(state, logger);
    logger.log_metrics({{"i", std::int64_t{9}}});
    if (trains) json.fit_start(state, logger);
    json.flush();
  }
};

// A log of some lines, of which the checkpoint knows all but the last.
struct Logged {
  explicit Logged(std::int64_t count) {
    Run run({.path = folder.file()});
    for (std::int64_t i = 0; i < count; ++i) run.logger.log_metrics({{"i", i}});
    checkpoint = saved_by(run.json);
    run.logger.log_metrics({{"i", count}});
    run.json.close(run.state, run.logger);
  }
  Folder folder;
  StateDict checkpoint;
};

TEST_CASE("JsonLinesLogger of a resumed run cuts its own log to the checkpoint and continues it, moved or not") {
  for (const std::int64_t count : {1, 3, 500}) {
    for (const bool moved : {false, true}) {
      for (const bool overwrite : {false, true}) {
        CAPTURE(count);
        CAPTURE(moved);
        Logged log(count);
        const std::string path = log.folder.file(moved ? "b.jsonl" : "a.jsonl");
        if (moved) fs::copy_file(log.folder.file(), path);
        ResumedRun resumed({.path = path, .overwrite = overwrite}, log.checkpoint);
        const auto objects = lines(path);
        REQUIRE(objects.size() == static_cast<std::size_t>(count) + 1);
        CHECK(objects.back()["i"] == 9);
        CHECK(objects[objects.size() - 2]["i"] == count - 1);
      }
    }
  }
}

TEST_CASE("JsonLinesLogger of a resumed run that only evaluates changes no byte of a log, and says what it dropped") {
  for (const bool own : {true, false}) {
    Logged log(3);
    if (!own) std::ofstream(log.folder.file()) << "something else\n";
    const std::string before = text_of(log.folder.file());
    const test::Warnings warnings;
    {
      ResumedRun evaluated({.path = log.folder.file(), .overwrite = true}, log.checkpoint, /*trains=*/false);
      CHECK(text_of(log.folder.file()) == before);
      evaluated.json.close(evaluated.state, evaluated.logger);
    }
    CHECK(text_of(log.folder.file()) == before);
    CHECK(warnings.say("records are not written"));
  }
}

TEST_CASE("JsonLinesLogger that has only held the log of a resumed run does not append that of its next run to it") {
  const Logged log(3);
  const std::string before = text_of(log.folder.file());
  const test::Warnings warnings;
  ResumedRun evaluated({.path = log.folder.file()}, log.checkpoint, /*trains=*/false);
  evaluated.json.close(evaluated.state, evaluated.logger);
  evaluated.state.resumes = false;
  CHECK_THROWS_AS(evaluated.json.init(evaluated.state, evaluated.logger), ConfigError);
  CHECK(text_of(log.folder.file()) == before);
}

TEST_CASE("JsonLinesLogger of a resumed run does not cut a log that was replaced before it trains") {
  const Logged log(3);
  ResumedRun resumed({.path = log.folder.file()}, log.checkpoint, /*trains=*/false);
  fs::remove(log.folder.file());
  std::ofstream(log.folder.file()) << std::string(1000, 'x');
  CHECK_THROWS_WITH_AS(resumed.json.fit_start(resumed.state, resumed.logger),
                       doctest::Contains("is not the log that the resumed run wrote"), ConfigError);
  CHECK(text_of(log.folder.file()) == std::string(1000, 'x'));
}

TEST_CASE("JsonLinesLogger of a resumed run never touches a file that is not its log") {
  const Logged log(3);
  const std::string own = text_of(log.folder.file());
  struct Row {
    const char* what;
    std::string text;
    const StateDict* checkpoint;
  };
  const StateDict none;
  StateDict old = log.checkpoint;  // of a version that kept the size alone
  old.erase("head");
  old.erase("tail");
  std::string other(own.size() * 100, 'x'), changed = own;
  changed[changed.rfind('2')] = '7';
  for (const Row& row :
       {Row{"something else, longer", other, &log.checkpoint}, Row{"something else, shorter", "x", &log.checkpoint},
        Row{"another run's, of the same length", changed, &log.checkpoint},
        Row{"the log, and a checkpoint without it", own, &none}, Row{"the log, and an old checkpoint", own, &old}}) {
    CAPTURE(row.what);
    const std::string path = log.folder.file("other.jsonl");
    const auto resume = [&](bool append, bool overwrite) {
      std::ofstream(path, std::ios::trunc) << row.text;
      ResumedRun run({.path = path, .append = append, .overwrite = overwrite}, *row.checkpoint);
    };
    CHECK_THROWS_WITH_AS(resume(false, false), doctest::Contains("is not the log that the resumed run wrote"),
                         ConfigError);
    CHECK(text_of(path) == row.text);
    resume(true, false);
    CHECK(text_of(path).starts_with(row.text));
    CHECK(text_of(path).size() > row.text.size());
    resume(false, true);
    CHECK(lines(path).size() == 2);
  }
}

TEST_CASE("JsonLinesLogger of a resumed run with another path begins a new log there") {
  const Logged log(3);
  const std::string before = text_of(log.folder.file());
  ResumedRun resumed({.path = log.folder.file("new.jsonl")}, log.checkpoint);
  CHECK(lines(log.folder.file("new.jsonl")).size() == 2);
  CHECK(text_of(log.folder.file()) == before);
}

TEST_CASE("JsonLinesLogger of a resumed run warns of a log that has lost its end, and continues it") {
  Logged log(500);
  fs::resize_file(log.folder.file(), 8000);
  const test::Warnings warnings;
  const ResumedRun resumed({.path = log.folder.file()}, log.checkpoint);
  CHECK(warnings.say("is shorter than when the checkpoint was written"));
  CHECK(text_of(log.folder.file()).ends_with("\"i\":9}\n"));
}

}  // namespace
}  // namespace composer::loggers::json_lines_logger_test
