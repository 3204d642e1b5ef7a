// What every logger whose log goes on does alike: a log is held until it is known whether the run goes on, goes on at
// the mark of the checkpoint, or is left as it is.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "composer/core/error.h"
#include "composer/core/logger.h"
#include "composer/core/state.h"
#include "composer/core/state_dict.h"
#include "composer/loggers/resumable_logger.h"
#include "tests/loggers/disk_loggers.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/saved_by.h"
#include "tests/support/text.h"
#include "tests/support/warnings.h"

namespace composer::loggers::resumable_logs_test {
namespace {

namespace fs = std::filesystem;
using composer::test::Folder;
using composer::test::saved_by;
using composer::test::Warnings;
using composer::test::logs::disk_loggers;
using composer::test::logs::DiskLogger;
using composer::test::logs::Lines;
using Of = StateVisitor::Of;

// A process of a run without a trainer.
struct Process {
  Process(const DiskLogger& kind, const fs::path& folder, bool resumes) : all(loggers_of(kind, folder)) {
    state.run_name = std::string("r");
    state.resumes = resumes;
    fire(Event::INIT);
  }
  Process(const DiskLogger& kind, const fs::path& folder) : Process(kind, folder, /*resumes=*/false) {}
  // Of the run that goes on from this checkpoint.
  Process(const DiskLogger& kind, const fs::path& folder, const StateDict& checkpoint) : Process(kind, folder, true) {
    load(checkpoint);
    fire(Event::AFTER_LOAD);
  }

  static Loggers loggers_of(const DiskLogger& kind, const fs::path& folder) {
    Loggers one;
    kind.add(one, folder);
    return one;
  }
  LoggerDestination& to() { return *all.list().front().object; }
  StateDict saved() { return saved_by(to()); }
  void load(const StateDict& checkpoint, Of of = Of::THIS_RUN) {
    StateVisitor visit = StateVisitor::loading(checkpoint, "ck", of);
    to().visit_state(visit);
  }
  void fire(Event event) { to().run_event(event, state, logger); }
  void log(std::int64_t step) { logger.log_metrics({{"a", step}}, step); }
  // As a run does that has come to its end.
  void end() {
    fire(Event::FIT_END);
    close();
  }
  void close() { to().close(state, logger); }

  State state;
  Loggers all;
  Logger logger{state, {&to()}};
};

// Every file below the folder, with its content.
Lines files_of(const fs::path& folder) {
  Lines files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    files.push_back(entry.path().string() + (entry.is_regular_file() ? composer::test::text_of(entry.path()) : ""));
  std::ranges::sort(files);
  return files;
}

// The lines of a run that has logged these steps.
Lines expected(const DiskLogger& kind, const std::vector<std::int64_t>& steps) {
  const Folder folder;
  Process run(kind, folder.path());
  run.fire(Event::FIT_START);
  for (const std::int64_t step : steps) run.log(step);
  run.end();
  return kind.read(folder.path());
}

// A log with steps 1 to 3, of which `checkpoint` has two, and `early` one.
struct Killed {
  Killed(const DiskLogger& kind, const fs::path& folder) {
    Process run(kind, folder);
    run.fire(Event::FIT_START);
    run.log(1);
    early = run.saved();
    wait();
    run.log(2);
    checkpoint = run.saved();
    wait();
    run.log(3);
    run.end();
  }
  // MLflow tells points apart by their milliseconds.
  static void wait() { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }
  StateDict early, checkpoint;
};

TEST_CASE("The log of a run that goes on has each step once, and is not changed before a fit begins") {
  for (const DiskLogger& kind : disk_loggers()) {
    CAPTURE(kind.name);
    const Folder folder;
    const Killed killed(kind, folder.path());
    const Lines before = files_of(folder.path());
    const Warnings warnings;
    Process resumed(kind, folder.path(), killed.checkpoint);
    resumed.log(3);
    resumed.to().flush();
    CHECK(files_of(folder.path()) == before);
    resumed.fire(Event::FIT_START);
    resumed.log(4);
    resumed.end();
    CHECK(warnings.texts.empty());
    // Lines that are held when the mark is loaded are in the log already; these were not.
    CHECK(kind.read(folder.path()) == expected(kind, {1, 2, 3, 4}));
  }
}

TEST_CASE("A second fit of a run that goes on, and a checkpoint between them, continue the same log") {
  for (const DiskLogger& kind : disk_loggers()) {
    CAPTURE(kind.name);
    const Folder folder;
    const Killed killed(kind, folder.path());
    StateDict between;
    {
      Process resumed(kind, folder.path(), killed.checkpoint);
      resumed.fire(Event::FIT_START);
      resumed.log(3);
      resumed.fire(Event::FIT_END);
      between = resumed.saved();
      Killed::wait();
      resumed.fire(Event::FIT_START);
      resumed.log(4);
      resumed.end();
    }
    CHECK(kind.read(folder.path()) == expected(kind, {1, 2, 3, 4}));
    Process again(kind, folder.path(), between);
    again.fire(Event::FIT_START);
    again.log(5);
    again.end();
    CHECK(kind.read(folder.path()) == expected(kind, {1, 2, 3, 5}));
  }
}

TEST_CASE("A run that goes on and only evaluates leaves its log as it is, and says what it has not written") {
  for (const DiskLogger& kind : disk_loggers()) {
    for (const bool logs : {true, false}) {
      CAPTURE(kind.name);
      CAPTURE(logs);
      const Folder folder;
      const Killed killed(kind, folder.path());
      const Lines before = files_of(folder.path());
      const Warnings warnings;
      Process resumed(kind, folder.path(), killed.checkpoint);
      if (logs) resumed.log(3);
      resumed.close();
      CHECK(files_of(folder.path()) == before);
      CHECK(warnings.say("1 records are not written") == logs);
      CHECK(warnings.texts.size() == (logs ? 1 : 0));
    }
  }
}

TEST_CASE("A checkpoint that a run which goes on writes before it trains has the place in its log of the one before") {
  for (const DiskLogger& kind : disk_loggers()) {
    CAPTURE(kind.name);
    const Folder folder;
    const Killed killed(kind, folder.path());
    StateDict between;
    {
      Process evaluated(kind, folder.path(), killed.checkpoint);
      between = evaluated.saved();
      evaluated.close();
    }
    Process resumed(kind, folder.path(), between);
    resumed.fire(Event::FIT_START);
    resumed.log(4);
    resumed.end();
    CHECK(kind.read(folder.path()) == expected(kind, {1, 2, 4}));
  }
}

TEST_CASE("A state that is loaded by hand, before or after a run that goes on trains, moves no place in its log") {
  for (const DiskLogger& kind : disk_loggers()) {
    for (const bool trains : {false, true}) {
      CAPTURE(kind.name);
      CAPTURE(trains);
      const Folder folder;
      const Killed killed(kind, folder.path());
      StateDict last;
      {
        Process resumed(kind, folder.path(), killed.checkpoint);
        if (!trains) resumed.load(killed.early, Of::ANOTHER);
        resumed.fire(Event::FIT_START);
        if (trains) resumed.load(killed.early, Of::ANOTHER);
        resumed.log(3);
        last = resumed.saved();
        resumed.end();
      }
      Process again(kind, folder.path(), last);
      again.fire(Event::FIT_START);
      again.end();
      CHECK(kind.read(folder.path()) == expected(kind, {1, 2, 3}));
    }
  }
}

TEST_CASE("A run that resumes a checkpoint without its logger begins a log, also for evaluations alone") {
  for (const DiskLogger& kind : disk_loggers()) {
    CAPTURE(kind.name);
    const Folder folder;
    Process resumed(kind, folder.path(), /*resumes=*/true);
    resumed.log(1);
    CHECK(fs::is_empty(folder.path()));
    CHECK(resumed.saved().empty());
    resumed.fire(Event::AFTER_LOAD);
    resumed.close();
    CHECK(kind.read(folder.path()) == expected(kind, {1}));
  }
}

TEST_CASE("A log that cannot be opened when a fit begins keeps its place, and a later fit goes on there") {
  for (const DiskLogger& kind : disk_loggers()) {
    CAPTURE(kind.name);
    const Folder folder;
    const fs::path place = folder / "logs", away = folder / "away";
    const Killed killed(kind, place);
    const Warnings warnings;
    StateDict meanwhile;
    {
      Process resumed(kind, place, killed.checkpoint);
      fs::rename(place, away);
      std::ofstream(place) << "in the way";
      CHECK_THROWS(resumed.fire(Event::FIT_START));
      meanwhile = resumed.saved();
      fs::remove(place);
      fs::rename(away, place);
      resumed.fire(Event::FIT_START);
      resumed.log(4);
      resumed.end();
    }
    CHECK(kind.read(place) == expected(kind, {1, 2, 4}));
    Process again(kind, place, meanwhile);
    again.fire(Event::FIT_START);
    again.end();
    CHECK(kind.read(place) == expected(kind, {1, 2}));
  }
}

TEST_CASE("Records that were lost before the checkpoint are counted once more at the end, if the log goes on") {
  for (const DiskLogger& kind : disk_loggers()) {
    for (const bool is_there : {true, false}) {
      CAPTURE(kind.name);
      CAPTURE(is_there);
      const Folder folder;
      Killed killed(kind, folder / "logs");
      killed.checkpoint["lost"] = std::int64_t{3};
      if (!is_there) fs::remove_all(folder / "logs");
      const Warnings warnings;
      if (is_there) {  // not lost by a process that does not train
        Process evaluated(kind, folder / "logs", killed.checkpoint);
        killed.checkpoint = evaluated.saved();
        evaluated.close();
        CHECK(warnings.texts.empty());
      }
      Process resumed(kind, folder / "logs", killed.checkpoint);
      resumed.fire(Event::FIT_START);
      resumed.log(4);
      resumed.end();
      // The log of TensorBoard is all files of a run, of which the missing one is told.
      CHECK(warnings.say("could not be written and are missing") == (is_there || kind.name == "TensorBoardLogger"));
    }
  }
}

TEST_CASE("A logger that is closed can begin another run, which is not that whose log was held") {
  for (const DiskLogger& kind : disk_loggers()) {
    CAPTURE(kind.name);
    const Folder folder;
    const Killed killed(kind, folder.path());
    const Warnings warnings;
    Process run(kind, folder.path(), killed.checkpoint);
    run.close();
    CHECK(run.saved().empty());
    run.fire(Event::FIT_START);  // nothing is opened
    run.fire(Event::AFTER_LOAD);
    run.fire(Event::INIT);
    run.load(killed.checkpoint);
    run.fire(Event::AFTER_LOAD);
    run.fire(Event::FIT_START);
    run.log(4);
    run.end();
    CHECK(kind.read(folder.path()) == expected(kind, {1, 2, 4}));
  }
}

}  // namespace
}  // namespace composer::loggers::resumable_logs_test
