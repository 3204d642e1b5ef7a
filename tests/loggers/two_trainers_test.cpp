// Trainers of one program with one run_name that log into one folder, as a generator and a discriminator: neither takes
// the log of the other for that of a dead process, and after a kill each has its own steps once.
#include <algorithm>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <sys/wait.h>

#include "composer/core/error.h"
#include "composer/loggers/csv_logger.h"
#include "composer/loggers/file_logger.h"
#include "composer/loggers/json_lines_logger.h"
#include "composer/loggers/tensorboard_logger.h"
#include "composer/util/file_lock.h"
#include "composer/util/threads_here.h"
#include "tests/loggers/disk_loggers.h"
#include "tests/loggers/event_reader.h"
#include "tests/support/doctest.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"
#include "tests/support/in_child.h"
#include "tests/support/text.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::loggers::two_trainers_test {
namespace {

namespace fs = std::filesystem;
using composer::test::Folder;
using composer::test::Warnings;
using Steps = std::vector<std::int64_t>;

constexpr std::int64_t kBatches = 8;

// Logs the number of each batch under a name of the trainer's own, and kills the process at the end of one.
class Marks final : public Callback {
 public:
  Marks(std::string name, std::int64_t dies) : name_(std::move(name)), dies_(dies) {}
  void batch_end(const State& state, Logger& logger) override {
    logger.log_metrics({{name_, state.timestamp.batch}});
    if (state.timestamp.batch != dies_) return;
    logger.flush();
    ::raise(SIGKILL);
  }

 private:
  std::string name_;
  std::int64_t dies_;
};

TrainerOptions options_of(const fs::path& folder, const std::string& name, std::int64_t dies = -1) {
  TrainerOptions options = composer::test::tiny_options();
  options.run_name = "gan";
  options.max_duration = Time(kBatches, TimeUnit::BATCH);
  options.save_folder = folder / name;
  options.save_interval = "2ba";
  options.save_async = false;
  options.auto_log_hparams = false;
  options.callbacks = {Marks(name, dies)};
  return options;
}

TrainerOptions with_board(const fs::path& folder, const std::string& name, std::int64_t dies = -1) {
  TrainerOptions options = options_of(folder, name, dies);
  options.loggers = {TensorBoardLogger({.folder = folder / "board/{run_name}", .flush_interval = Seconds(0)})};
  return options;
}

void take_turns(TrainerOptions judge, TrainerOptions forger) {
  Trainer first(std::move(judge)), second(std::move(forger));
  first.begin();
  second.begin();
  while (first.step()) second.step();
  first.end();
  second.end();
}

// A pair that resumes together, killed at the end of a batch of the second trainer.
bool starts(const fs::path& folder, std::int64_t dies) {
  const int status = composer::test::status_of_child([&] {
    use_threads_here(1);
    const Warnings quiet;
    TrainerOptions judge = with_board(folder, "judge"), forger = with_board(folder, "forger", dies);
    judge.resume_with = {folder / "forger"};
    forger.resume_with = {folder / "judge"};
    take_turns(std::move(judge), std::move(forger));
  });
  return dies < 0 ? composer::test::ended_well(status) : WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

// What TensorBoard shows.
Steps steps_of(const fs::path& folder, const std::string& tag) {
  Steps steps;
  for (const fs::path& file : composer::test::event_files(folder / "board/gan"))
    std::ranges::copy(composer::test::read_events(file).steps(tag), std::back_inserter(steps));
  std::ranges::sort(steps);
  return steps;
}

Steps all_steps() {
  Steps all;
  for (std::int64_t batch = 1; batch <= kBatches; ++batch) all.push_back(batch);
  return all;
}

TEST_CASE("Two trainers of one run_name with one folder of TensorBoard have a log each, with all steps") {
  const Folder folder;
  const Warnings warnings;
  take_turns(with_board(folder.path(), "judge"), with_board(folder.path(), "forger"));
  CHECK(steps_of(folder.path(), "judge") == all_steps());
  CHECK(steps_of(folder.path(), "forger") == all_steps());
  CHECK_FALSE(warnings.say("earlier process"));
}

TEST_CASE("Two trainers that were killed and start again have each step once in TensorBoard") {
  for (const std::vector<std::int64_t>& kills : {std::vector<std::int64_t>{5}, {1, 5}, {6, 7}, {1, 1, 3, 3, 5}}) {
    CAPTURE(kills.size());
    const Folder folder;
    for (const std::int64_t dies : kills) CHECK(starts(folder.path(), dies));
    CHECK(starts(folder.path(), -1));
    CHECK(steps_of(folder.path(), "judge") == all_steps());
    CHECK(steps_of(folder.path(), "forger") == all_steps());
  }
}

TEST_CASE("A trainer that begins when another of its run_name has ended leaves that one's log alone") {
  const Folder folder;
  const Warnings warnings;
  for (const char* name : {"judge", "forger"}) Trainer(with_board(folder.path(), name)).fit();
  CHECK(steps_of(folder.path(), "judge") == all_steps());
  CHECK(steps_of(folder.path(), "forger") == all_steps());
  CHECK_FALSE(warnings.say("earlier process"));
}

TEST_CASE("A run whose checkpoints and logs were moved together cuts and drops what it logs again") {
  const Folder folder;
  for (const std::int64_t dies : {5, 5}) CHECK(starts(folder / "old", dies));
  fs::rename(folder / "old", folder / "new");
  CHECK(starts(folder / "new", -1));
  CHECK(steps_of(folder / "new", "judge") == all_steps());
  CHECK(steps_of(folder / "new", "forger") == all_steps());
}

TEST_CASE("Two TensorBoardLoggers of one trainer with one folder have each step once, also after a kill") {
  const Folder folder;
  const auto make = [&](std::int64_t dies) {
    TrainerOptions options = with_board(folder.path(), "judge", dies);
    options.loggers.add(TensorBoardLogger(
        {.folder = folder / "board/{run_name}", .simple_values = true, .flush_interval = Seconds(0)}));
    return options;
  };
  for (const std::int64_t dies : {1, 5, 5}) {
    const int status = composer::test::status_of_child([&] {
      use_threads_here(1);
      const Warnings quiet;
      Trainer(make(dies)).fit();
    });
    CHECK(WIFSIGNALED(status));
  }
  const Warnings quiet;
  Trainer(make(-1)).fit();
  Steps twice = all_steps();
  for (const std::int64_t step : all_steps()) twice.push_back(step);
  std::ranges::sort(twice);
  CHECK(steps_of(folder.path(), "judge") == twice);
}

TEST_CASE(
    "A log that another trainer is writing is not renamed: the second fit is refused, and the first log is whole") {
  const Folder folder;
  const auto check = [&](const std::string& file, const auto& add) {
    CAPTURE(file);
    TrainerOptions judge = options_of(folder / file, "judge"), forger = options_of(folder / file, "forger");
    add(judge.loggers), add(forger.loggers);
    const Warnings quiet;
    Trainer first(std::move(judge)), second(std::move(forger));
    first.begin();
    CHECK(composer::test::error_of([&] { second.begin(); }).find("is being written by another logger") !=
          std::string::npos);
    while (first.step()) {
    }
    first.end();
    first.close();
    CHECK(composer::test::text_of(folder / file / "gan.log").find("judge") != std::string::npos);
    CHECK_FALSE(fs::exists(folder / file / "gan.log.1"));
  };
  check("csv", [&](Loggers& to) { to.add(CsvLogger({.path = folder / "csv/{run_name}.log"})); });
  check("json", [&](Loggers& to) { to.add(JsonLinesLogger({.path = folder / "json/{run_name}.log"})); });
  check("text", [&](Loggers& to) { to.add(FileLogger({.path = folder / "text/{run_name}.log"})); });
}

TEST_CASE("A run that goes on cuts no file of TensorBoard that a trainer which lives on writes") {
  const Folder folder;
  const Warnings warnings;
  TrainerOptions half = with_board(folder.path(), "judge"), whole = with_board(folder.path(), "judge");
  half.max_duration = "4ba";
  Trainer first(std::move(half));
  first.fit();
  const auto files = composer::test::event_files(folder / "board/gan");
  REQUIRE(files.size() == 1);
  const std::uintmax_t before = fs::file_size(files[0]);
  Trainer(std::move(whole)).fit();
  CHECK(fs::file_size(files[0]) >= before);
  CHECK(warnings.say("is being written by another logger of this run"));
  CHECK(steps_of(folder.path(), "judge") == all_steps());
}

TEST_CASE("A run that goes on cuts the file of TensorBoard of a trainer that was closed before its fit") {
  const Folder folder;
  const Warnings warnings;
  std::optional<Trainer> first(with_board(folder.path(), "judge"));
  first->begin();
  while (first->state().timestamp.batch < 3) first->step();
  Trainer second(with_board(folder.path(), "judge"));
  CHECK(second.state().timestamp.batch == 2);
  first.reset();
  second.fit();
  CHECK(steps_of(folder.path(), "judge") == all_steps());
  CHECK_FALSE(warnings.say("is being written by another logger"));
}

// Never by dropping records.
TEST_CASE("A run that goes on beside its first trainer has its whole log, or is refused when its fit begins") {
  for (const auto& logger : composer::test::logs::disk_loggers()) {
    CAPTURE(logger.name);
    const Folder folder;
    const Warnings warnings;
    const auto run = [&](const char* until) {
      TrainerOptions options = options_of(folder.path(), "judge");
      options.max_duration = Time::parse(until);
      logger.add(options.loggers, folder.path());
      return options;
    };
    Trainer first(run("4ba"));
    first.fit();
    Trainer second(run("8ba"));
    const std::string error = composer::test::error_of([&] { second.fit(); });
    const bool is_refused = logger.name != "MLFlowLogger" && logger.name != "TensorBoardLogger";
    CHECK(error.find(is_refused ? "is being written by another logger" : "no error") != std::string::npos);
    first.close();
    if (is_refused) second.fit();  // now the log is its own
    second.close();
    for (const char* loss : {"dropped until", "could not be written", "are not written"})
      CHECK_FALSE(warnings.say(loss));
    std::int64_t judged = 0;
    for (const std::string& line : logger.read(folder.path()))
      if (line.find("judge") != std::string::npos) ++judged;
    CHECK(judged == kBatches);
  }
}

TEST_CASE("Other trainers' logs of W&B and MLflow are runs of their own, though they have one run_name") {
  const Folder folder;
  for (const auto& logger : composer::test::logs::disk_loggers()) {
    if (logger.name != "WandBLogger" && logger.name != "MLFlowLogger") continue;
    CAPTURE(logger.name);
    const fs::path here = folder / logger.name;
    TrainerOptions judge = options_of(here, "judge"), forger = options_of(here, "forger");
    logger.add(judge.loggers, here), logger.add(forger.loggers, here);
    const Warnings quiet;
    take_turns(std::move(judge), std::move(forger));
    std::map<std::string, std::int64_t> lines;
    for (const std::string& line : logger.read(here))
      for (const char* name : {"judge", "forger"})
        if (line.find(name) != std::string::npos) ++lines[name];
    CHECK(lines["judge"] == kBatches);
    CHECK(lines["forger"] == kBatches);
  }
}

TEST_CASE("Two loggers cannot write to one file by two paths, with links or without") {
  const Folder folder;
  fs::create_directories(folder / "real");
  composer::test::write_text(folder / "real/log.csv", "");
  fs::create_symlink("real/log.csv", folder / "link.csv");
  fs::create_symlink("link.csv", folder / "second_link.csv");
  fs::create_directory_symlink("real", folder / "linked");
  fs::create_hard_link(folder / "real/log.csv", folder / "hard.csv");
  fs::create_symlink("real/later.csv", folder / "dangling.csv");
  const auto refuses = [&](const std::string& one, const std::string& other) {
    CAPTURE(one);
    CAPTURE(other);
    TrainerOptions options = composer::test::tiny_options();
    for (const std::string& name : {one, other})
      options.loggers.add(CsvLogger({.path = folder / name, .append = true}));
    const std::string error = composer::test::error_of([&] { Trainer(std::move(options)); });
    CHECK(error.find("is being written by another logger") != std::string::npos);
  };
  const std::vector<std::string> names = {"real/log.csv", "link.csv", "second_link.csv", "linked/log.csv", "hard.csv"};
  for (const std::string& one : names)
    for (const std::string& other : names) refuses(one, other);
  refuses("dangling.csv", "real/later.csv");
}

TEST_CASE("A file is in use as long as a lock of it lives, also after it was renamed") {
  const Folder folder;
  const fs::path file = folder / "log";
  CHECK_FALSE(util::is_in_use(file));
  composer::test::write_text(file, "x");
  CHECK_FALSE(util::is_in_use(file));
  {
    const util::FileLock lock(file);
    CHECK(lock.state() == util::FileLock::State::HELD);
    CHECK(util::is_in_use(file));
    fs::rename(file, folder / "moved");
    CHECK_FALSE(util::is_in_use(file));
    CHECK(util::is_in_use(folder / "moved"));
  }
  CHECK_FALSE(util::is_in_use(folder / "moved"));
}

}  // namespace
}  // namespace composer::loggers::two_trainers_test
