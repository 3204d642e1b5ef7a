#include "composer/loggers/file_logger.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include <ATen/ATen.h>

#include <doctest/doctest.h>

#include "composer/core/error.h"
#include "composer/core/state.h"
#include "tests/support/folder.h"

namespace composer::loggers {
namespace {

std::string read(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

struct Run {
  explicit Run(FileLoggerOptions options) : file(std::move(options)) { state.run_name = "r"; }
  State state;
  FileLogger file;
  Logger logger{state, {&file}};
};

TEST_CASE("FileLogger writes one line for each value, as Composer does") {
  const test::Folder folder;
  Run run({.path = folder / "{run_name}/logs-rank{rank}.txt"});
  run.state.rank = 3;
  run.logger.log_hyperparameters({{"seed", std::int64_t{17}}, {"name", std::string("a\nb")}});
  run.logger.log_metrics({{"loss", at::full({}, 0.25)}, {"on", true}}, 12);
  run.logger.log_metrics({{"a\nb", std::int64_t{1}}}, 13);
  run.logger.log_table("t", {{"p", "q"}, {{std::string("x\"\n"), 1.5}, {true, at::full({}, 2)}}}, 14);
  run.logger.log_traces(std::array<LogEntry, 1>{{{"algorithm_traces/EMA/Event.INIT", std::int64_t{1}}}});
  run.logger.log_histogram("h", LogHistogram::of({1}, {0, 1}));
  run.file.close(run.state, run.logger);
  CHECK(read(folder / "r/logs-rank3.txt") ==
        "[hyperparameter]: seed: 17\n"
        "[hyperparameter]: name: a\\nb\n"
        "[metric][batch=12]: loss: 0.2500\n"
        "[metric][batch=12]: on: True\n"
        "[metric][batch=13]: a\\nb: 1\n"
        "[table][batch=14]: t: {\"columns\":[\"p\",\"q\"],\"data\":[[\"x\\\"\\n\",1.5],[true,2]]}\n"
        "[trace][batch=0]: algorithm_traces/EMA/Event.INIT: 1\n");
}

TEST_CASE("FileLogger without log_traces writes no traces") {
  const test::Folder folder;
  Run run({.path = folder / "a", .log_traces = false});
  run.logger.log_traces(std::array<LogEntry, 1>{{{"t", std::int64_t{1}}}});
  run.logger.log_metrics({{"a", std::int64_t{1}}});
  run.file.close(run.state, run.logger);
  CHECK(read(folder / "a") == "[metric][batch=0]: a: 1\n");
}

TEST_CASE("FileLogger keeps an existing file unless it is told to replace it") {
  const test::Folder folder;
  std::ofstream(folder / "a") << "x\n";
  const auto log = [&](FileLoggerOptions options) {
    Run run(std::move(options));
    run.logger.log_metrics({{"a", std::int64_t{1}}});
    run.file.close(run.state, run.logger);
  };
  CHECK_THROWS_AS(log({.path = folder / "a"}), ConfigError);
  CHECK(read(folder / "a") == "x\n");
  log({.path = folder / "a", .append = true});
  CHECK(read(folder / "a") == "x\n[metric][batch=0]: a: 1\n");
  log({.path = folder / "a", .overwrite = true});
  CHECK(read(folder / "a") == "[metric][batch=0]: a: 1\n");
}

TEST_CASE("FileLogger rejects other placeholders than {run_name} and {rank}") {
  CHECK_THROWS_WITH_AS(FileLogger({.path = "{epoch}"}),
                       "FileLogger: the placeholders of path are {run_name} and {rank}, got {epoch}", ConfigError);
}

}  // namespace
}  // namespace composer::loggers
