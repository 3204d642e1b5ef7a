#include "composer/loggers/file_logger.h"

#include <filesystem>
#include <fstream>
#include <iostream>
#include <set>
#include <sstream>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/core/state.h"
#include "composer/loggers/format.h"
#include "tests/support/at_algorithm.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/locale.h"
#include "tests/support/text.h"
#include "tests/support/tiny.h"

namespace composer::loggers::file_logger_test {
namespace {

using test::text_of;

struct Run {
  explicit Run(FileLoggerOptions options) : file(std::move(options)) { state.run_name = "r"; }
  State state;
  FileLogger file;
  Logger logger{state, {&file}};
};

TEST_CASE("Sizes of tensors are written alike in every locale") {
  const test::OtherLocale other;
  CHECK(format_log_value(at::zeros({1024, 2})) == "Tensor of shape torch.Size([1024, 2])");
}

TEST_CASE("A tensor whose memory has the other sign is logged as what it is") {
  const at::Tensor value = at::imag(at::complex(at::full({}, 1.5), at::full({}, 3.0)).conj());
  REQUIRE(value.is_neg());
  CHECK(format_log_value(value) == format_log_value(at::full({}, -3.0)));
  const test::Folder folder;
  Run run({.path = folder / "log.txt"});
  run.logger.log_metrics({{"value", value}}, 1);
  run.file.close(run.state, run.logger);
  CHECK(text_of(folder / "log.txt").find(": -3") != std::string::npos);
}

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
  CHECK(text_of(folder / "r/logs-rank3.txt") ==
        "[hyperparameter]: seed: 17\n"
        "[hyperparameter]: name: a\\nb\n"
        "[metric][batch=12]: loss: 0.2500\n"
        "[metric][batch=12]: on: True\n"
        "[metric][batch=13]: a\\nb: 1\n"
        "[table][batch=14]: t: {\"columns\":[\"p\",\"q\"],\"data\":[[\"x\\\"\\n\",1.5],[true,2]]}\n"
        "[trace][batch=0]: algorithm_traces/EMA/Event.INIT: 1\n");
}

// Of a stream, as somebody else's.
struct Shown {
  explicit Shown(std::ostream& stream) : stream(stream), before(stream.rdbuf(text.rdbuf())) {}
  ~Shown() { stream.rdbuf(before); }
  std::ostringstream text;
  std::ostream& stream;
  std::streambuf* before;
};

TEST_CASE("FileLogger writes what the program writes to the captured streams, which get it as well") {
  const test::Folder folder;
  const Shown out(std::cout), err(std::cerr);
  std::streambuf* const own = std::cout.rdbuf();
  {
    Run run({.path = folder / "a", .capture_stdout = true, .capture_stderr = true});
    std::cout << "before INIT\n";
    run.file.init(run.state, run.logger);
    std::cout << "one " << 2 << '\n' << "two " << std::flush;
    std::cerr << "to stderr\n";
    run.logger.log_metrics({{"a", std::int64_t{1}}}, 7);
    std::cout << "words\n";
    std::clog << " 10%\r 50%\r100%\n";
    run.file.batch_end(run.state, run.logger);
    std::cout << "no newline";
    run.file.close(run.state, run.logger);
    std::cout << "\nafter\n";
  }
  CHECK(text_of(folder / "a") ==
        "[stdout]: one 2\n[stderr]: to stderr\n[metric][batch=7]: a: 1\n[stdout]: two words\n[stderr]: 100%\n"
        "[stdout]: no newline\n");
  CHECK(out.text.str() == "before INIT\none 2\ntwo words\nno newline\nafter\n");
  CHECK(err.text.str() == "to stderr\n");
  CHECK(std::cout.rdbuf() == own);
}

TEST_CASE("Several FileLoggers capture the same streams, in whatever order they are closed") {
  const test::Folder folder;
  const Shown out(std::cout);
  Run first({.path = folder / "a", .capture_stdout = true});
  Run second({.path = folder / "b", .capture_stdout = true});
  first.file.init(first.state, first.logger);
  second.file.init(second.state, second.logger);
  std::cout << "both\n";
  first.file.close(first.state, first.logger);
  std::cout << "second\n";
  second.file.close(second.state, second.logger);
  std::cout << "none\n";
  CHECK(text_of(folder / "a") == "[stdout]: both\n");
  CHECK(text_of(folder / "b") == "[stdout]: both\n[stdout]: second\n");
  CHECK(out.text.str() == "both\nsecond\nnone\n");
}

TEST_CASE("A stream whose buffer was replaced while it was captured is left to who replaced it") {
  const test::Folder folder;
  const Shown out(std::cout);
  std::ostringstream other;
  {
    Run run({.path = folder / "a", .capture_stdout = true});
    run.file.init(run.state, run.logger);
    std::streambuf* const captured = std::cout.rdbuf(other.rdbuf());
    run.file.close(run.state, run.logger);
    std::cout << "other\n";
    std::cout.rdbuf(captured);
  }
  std::cout << "after\n";
  CHECK(other.str() == "other\n");
  CHECK(out.text.str() == "after\n");
}

TEST_CASE("FileLogger without log_traces writes no traces") {
  const test::Folder folder;
  Run run({.path = folder / "a", .log_traces = false});
  run.logger.log_traces(std::array<LogEntry, 1>{{{"t", std::int64_t{1}}}});
  run.logger.log_metrics({{"a", std::int64_t{1}}});
  run.file.close(run.state, run.logger);
  CHECK(text_of(folder / "a") == "[metric][batch=0]: a: 1\n");
}

std::multiset<std::string> lines_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::multiset<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.insert(line);
  return lines;
}

// Of a trainer, because what runs at AFTER_LOAD and FIT_START runs when the process begins, too.
TEST_CASE(
    "FileLogger of a resumed run has the lines of an uninterrupted one, and again what ran as the process began") {
  const test::Folder folder;
  const auto train = [&](const std::string& name, const char* until, bool traces) {
    TrainerOptions options = test::tiny_options();
    options.max_duration = Time::parse(until);
    options.auto_log_hparams = false;
    options.seed = 7;
    options.algorithms = {test::AtAlgorithm({Event::AFTER_LOAD, Event::FIT_START, Event::BATCH_END}, [](State&) {})};
    options.loggers = {FileLogger({.path = folder / (name + ".txt"), .log_traces = traces})};
    options.save_folder = folder / name;
    Trainer(std::move(options)).fit();
  };
  for (const bool traces : {true, false}) {
    const std::string whole = traces ? "a" : "c", cut = traces ? "b" : "d";
    train(whole, "2ep", traces);
    for (const char* until : {"1ep", "2ep"}) train(cut, until, traces);
    std::multiset<std::string> more = lines_of(folder / (cut + ".txt"));
    for (const std::string& line : lines_of(folder / (whole + ".txt"))) {
      REQUIRE(more.contains(line));
      more.erase(more.find(line));
    }
    CHECK(more.size() == (traces ? 2 : 0));
    for (const std::string& line : more)
      CHECK((line.find("Event.AFTER_LOAD") != line.npos || line.find("Event.FIT_START") != line.npos));
  }
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
  CHECK(text_of(folder / "a") == "x\n");
  log({.path = folder / "a", .append = true});
  CHECK(text_of(folder / "a") == "x\n[metric][batch=0]: a: 1\n");
  log({.path = folder / "a", .overwrite = true});
  CHECK(text_of(folder / "a") == "[metric][batch=0]: a: 1\n");
}

TEST_CASE("FileLogger rejects other placeholders than {run_name} and {rank}") {
  CHECK_THROWS_WITH_AS(FileLogger({.path = "{epoch}"}),
                       "FileLogger: the placeholders of path are {run_name} and {rank}, got {epoch}", ConfigError);
}

}  // namespace
}  // namespace composer::loggers::file_logger_test
