// What every logger that writes a file of lines survives.
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <unistd.h>

#include <sys/inotify.h>
#include <sys/stat.h>

#include "composer/core/error.h"
#include "composer/core/state.h"
#include "composer/core/state_dict.h"
#include "composer/loggers/csv_logger.h"
#include "composer/loggers/file_logger.h"
#include "composer/loggers/json_lines_logger.h"
#include "tests/support/doctest.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/folder.h"
#include "tests/support/saved_by.h"
#include "tests/support/text.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::loggers::file_faults_test {
namespace {

using test::text_of;

template <class Logger_>
struct Run {
  explicit Run(const std::string& path, bool append = false) : destination({.path = path, .append = append}) {}
  void init() { destination.init(state, logger); }
  void log(std::int64_t value) {
    logger.log_metrics({{"a", value}});
    destination.flush();
  }
  void close() { destination.close(state, logger); }
  State state;
  Logger_ destination;
  Logger logger{state, {&destination}};
};

// The part of the file that log(value) writes.
template <class Logger_>
std::string line(std::int64_t value) {
  const test::Folder folder;
  Run<Logger_> run(folder / "a");
  run.log(0);
  const std::size_t size = text_of(folder / "a").size();
  run.log(value);
  run.close();
  return text_of(folder / "a").substr(size);
}

TEST_CASE_TEMPLATE("A log that another program cuts to nothing goes on from there, without a hole", T, JsonLinesLogger,
                   FileLogger, CsvLogger) {
  const test::Folder folder;
  Run<T> run(folder / "a");
  for (std::int64_t i = 0; i < 3; ++i) run.log(i);
  std::filesystem::resize_file(folder / "a", 0);
  run.log(3);
  run.close();
  CHECK(text_of(folder / "a").find('\0') == std::string::npos);
  CHECK(text_of(folder / "a").ends_with(line<T>(3)));
}

TEST_CASE_TEMPLATE("A folder that cannot be made is an error that says so", T, JsonLinesLogger, FileLogger, CsvLogger) {
  const test::Folder folder;
  std::ofstream(folder / "file") << "x";
  Run<T> run(folder / "file/folder/a");
  CHECK_THROWS_WITH_AS(run.init(), doctest::Contains("its folder cannot be made: Not a directory"), ConfigError);
}

TEST_CASE_TEMPLATE("A logger of lines survives a full disk: one warning, and a count at the end", T, JsonLinesLogger,
                   FileLogger, CsvLogger) {
  const test::Warnings warnings;
  Run<T> run("/dev/full", /*append=*/true);
  run.init();
  for (std::int64_t i = 0; i < 3; ++i) CHECK_NOTHROW(run.log(i));
  CHECK_NOTHROW(run.close());
  REQUIRE(warnings.texts.size() == 2);
  CHECK(warnings.say("cannot write /dev/full: No space left on device; training continues"));
  CHECK(warnings.say("could not be written and are missing in /dev/full"));
  CHECK(warnings.texts[1].find(": 3 ") != std::string::npos);
}

TEST_CASE_TEMPLATE("A logger of lines keeps whole lines alone on a disk that is full in the middle of one", T,
                   JsonLinesLogger, FileLogger, CsvLogger) {
  const test::Folder folder;
  const test::Warnings warnings;
  Run<T> run(folder / "a");
  run.log(0);
  const std::string before = text_of(folder / "a");
  {
    const test::FileSizeLimit limit(before.size() + 5);
    run.log(1);
  }
  run.log(2);
  run.close();
  CHECK(text_of(folder / "a") == before + line<T>(2));
  CHECK(warnings.texts.size() == 2);
}

TEST_CASE_TEMPLATE("A logger of lines rejects at INIT a path that cannot be written", T, JsonLinesLogger, FileLogger,
                   CsvLogger) {
  const test::Folder folder;
  std::ofstream(folder / "file") << "x";
  for (const std::string& path : {(folder / "file/a").string(), folder.path().string()}) {
    Run<T> run(path, /*append=*/true);
    CHECK_THROWS_WITH_AS(run.init(), doctest::Contains(path.c_str()), ConfigError);
  }
}

TEST_CASE_TEMPLATE("A logger of lines whose file or folder is removed begins it again, and counts what is missing", T,
                   JsonLinesLogger, FileLogger, CsvLogger) {
  for (const bool with_folder : {false, true}) {
    const test::Folder folder;
    const test::Warnings warnings;
    const std::string path = folder / "b/a";
    Run<T> run(path);
    run.log(0);
    const std::string first = text_of(path);
    run.log(1);
    std::filesystem::remove_all(with_folder ? folder / "b" : std::filesystem::path(path));
    run.log(0);
    run.close();
    CHECK(text_of(path) == first);
    REQUIRE(warnings.texts.size() == 2);
    CHECK(warnings.say(path + " was removed and is begun again"));
    CHECK(warnings.texts[1].find(": 2 ") != std::string::npos);
  }
}

TEST_CASE_TEMPLATE("A logger of lines survives a pipe whose reader ends", T, JsonLinesLogger, FileLogger, CsvLogger) {
  const test::Folder folder;
  const test::Warnings warnings;
  const std::string path = folder / "pipe";
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  const int reader = ::open(path.c_str(), O_RDONLY | O_NONBLOCK);
  Run<T> run(path, /*append=*/true);
  run.log(0);
  ::close(reader);
  CHECK_NOTHROW(run.log(1));
  run.close();
  CHECK(warnings.say("Broken pipe; training continues"));
  CHECK(warnings.texts.size() == 2);
}

TEST_CASE_TEMPLATE(
    "A logger of lines opens a pipe once: one that comes and goes before would end what the reader reads", T,
    JsonLinesLogger, FileLogger, CsvLogger) {
  const test::Folder folder;
  const std::string path = folder / "pipe";
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  const int reader = ::open(path.c_str(), O_RDONLY | O_NONBLOCK), seen = ::inotify_init1(IN_NONBLOCK);
  REQUIRE(::inotify_add_watch(seen, path.c_str(), IN_OPEN | IN_CLOSE) >= 0);
  Run<T> run(path, /*append=*/true);
  run.init();
  char events[1024];
  CHECK(::read(seen, events, sizeof events) == static_cast<ssize_t>(sizeof(inotify_event)));
  run.close();
  ::close(seen), ::close(reader);
}

TEST_CASE_TEMPLATE("A log that cannot be begun again is lost as long as it cannot, and no longer", T, JsonLinesLogger,
                   FileLogger, CsvLogger) {
  const test::Folder folder;
  const test::Warnings warnings;
  const std::string path = folder / "a";
  Run<T> run(path);
  run.log(0);
  const std::string first = text_of(path);
  std::filesystem::remove(path);
  {
    Run<CsvLogger> other(path);
    other.log(5);
    const std::string before = text_of(path);
    run.log(1), run.log(2);
    CHECK(text_of(path) == before);
    other.close();
  }
  std::filesystem::remove(path);
  run.log(0);
  run.close();
  CHECK(text_of(path) == first);
  CHECK(warnings.say("is being written by another logger"));
  CHECK(warnings.texts.back().find(": 3 ") != std::string::npos);
}

TEST_CASE_TEMPLATE("A run that starts again keeps the earlier file aside if its path contains the name of the run", T,
                   FileLogger, CsvLogger) {
  for (const bool own_path : {true, false}) {
    const test::Folder folder;
    const std::string path = folder / (own_path ? "tiny.txt" : "other.txt");
    std::ofstream(path) << "x\n";
    const test::Warnings warnings;
    const auto fit = [&] {
      TrainerOptions options = test::tiny_options();
      options.save_folder = folder / "ck";
      options.loggers = {T({.path = folder / (own_path ? "{run_name}.txt" : "other.txt")})};
      Trainer(std::move(options)).fit();
    };
    if (own_path) {
      CHECK_NOTHROW(fit());
      CHECK(text_of(path + ".1") == "x\n");
      CHECK(text_of(path).find("loss/train/total") != std::string::npos);
    } else {
      CHECK_THROWS_WITH_AS(fit(), doctest::Contains("exists; choose another path"), RunError);
      CHECK(text_of(path) == "x\n");
    }
  }
}

TEST_CASE_TEMPLATE("A logger of lines that is to fail reports a full disk at a call after it", T, JsonLinesLogger,
                   FileLogger, CsvLogger) {
  State state;
  T destination({.path = "/dev/full", .append = true, .on_failure = LogFailure::FAIL});
  Logger logger(state, {&destination});
  logger.log_metrics({{"a", 1.0}});
  CHECK_THROWS_WITH_AS(destination.flush(), doctest::Contains("cannot write /dev/full"), Error);
  CHECK_NOTHROW(destination.close(state, logger));
}

// A process that goes on from the checkpoint.
template <class Logger_>
struct Resumed : Run<Logger_> {
  Resumed(const std::string& path, const StateDict& checkpoint, bool append = false) : Run<Logger_>(path, append) {
    this->state.resumes = true;
    this->init();
    StateVisitor visit = StateVisitor::loading(checkpoint, "ck");
    this->destination.visit_state(visit);
    this->destination.after_load(this->state, this->logger);
    this->destination.fit_start(this->state, this->logger);
  }
};

TEST_CASE_TEMPLATE("A log that is removed before its run goes on is begun again, with a warning", T, JsonLinesLogger,
                   FileLogger, CsvLogger) {
  const test::Folder folder;
  const std::string path = folder / "a";
  StateDict checkpoint;
  {
    Run<T> run(path);
    run.log(0);
    checkpoint = test::saved_by(run.destination);
    run.close();
  }
  const std::string first = text_of(path);
  std::filesystem::remove(path);
  const test::Warnings warnings;
  Resumed<T> resumed(path, checkpoint);
  resumed.log(0);
  resumed.close();
  CHECK(text_of(path) == first);
  REQUIRE(warnings.texts.size() == 1);
  CHECK(warnings.say(join(path, " does not exist, but the log of the run had ", first.size(), " bytes")));
}

TEST_CASE_TEMPLATE("A logger of lines refuses a file that another one writes, also to append to it or to replace it", T,
                   JsonLinesLogger, FileLogger, CsvLogger) {
  const test::Folder folder;
  const std::string path = folder / "a";
  Run<CsvLogger> first(path, /*append=*/true);
  first.log(0);
  const std::string before = text_of(path);
  const auto refused = [&](T second) {
    State state;
    Logger logger(state, {&second});
    CHECK_THROWS_WITH_AS(second.init(state, logger), doctest::Contains("is being written by another logger"),
                         ConfigError);
    CHECK(text_of(path) == before);
  };
  refused(T({.path = path, .append = true}));
  refused(T({.path = path, .overwrite = true}));
  first.close();
  Run<T> later(path, /*append=*/true);
  CHECK_NOTHROW(later.init());
  later.close();
}

TEST_CASE_TEMPLATE("A log that goes on is not cut while another run's logger writes it, but refused", T,
                   JsonLinesLogger, FileLogger, CsvLogger) {
  const test::Folder folder;
  const std::string path = folder / "a";
  StateDict checkpoint;
  {
    Run<T> first(path, /*append=*/true);
    first.log(0);
    checkpoint = test::saved_by(first.destination);
    first.close();
  }
  Run<T> other(path, /*append=*/true);
  other.log(1);
  const std::string before = text_of(path);
  CHECK_THROWS_WITH_AS(Resumed<T>(path, checkpoint, /*append=*/true),
                       doctest::Contains("is being written by another logger"), ConfigError);
  CHECK(text_of(path) == before);
  other.log(2);
  CHECK(text_of(path).starts_with(before));
  other.close();
  CHECK_NOTHROW(Resumed<T>(path, checkpoint, /*append=*/true).close());
}

TEST_CASE_TEMPLATE("What could not be written before a kill is counted at the end of the run that goes on", T,
                   JsonLinesLogger, FileLogger, CsvLogger) {
  const test::Folder folder;
  const std::string path = folder / "a", of_killed = folder / "killed";
  const test::Warnings warnings;
  Run<T> killed(of_killed);
  killed.log(0);
  {
    const test::FileSizeLimit limit(text_of(of_killed).size());
    killed.log(1), killed.log(2);
  }
  const StateDict checkpoint = test::saved_by(killed.destination);
  {
    const test::FileSizeLimit limit(text_of(of_killed).size());
    killed.log(3);  // is logged again
  }
  std::filesystem::copy_file(of_killed, path);  // of which nobody has the lock
  Resumed<T> resumed(path, checkpoint);
  const StateDict later = test::saved_by(resumed.destination);
  resumed.close();
  REQUIRE(warnings.texts.size() == 2);
  CHECK(warnings.texts[1].find(": 2 ") != std::string::npos);
  CHECK(warnings.say("could not be written and are missing in " + path));
  Resumed<T>(path, later).close();
  CHECK(warnings.texts.size() == 3);
}

}  // namespace
}  // namespace composer::loggers::file_faults_test
