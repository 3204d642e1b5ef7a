// Runs that are killed at any moment and started again: the log of every logger is that of a run that was not, but for
// times. Nothing that is logged makes a log unreadable, costs another key its values, or leaves the folder.
#include <csignal>
#include <filesystem>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include <sys/wait.h>

#include "composer/core/error.h"
#include "composer/core/on.h"
#include "composer/util/threads_here.h"
#include "tests/loggers/disk_loggers.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/in_child.h"
#include "tests/support/left_child.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::loggers::killed_runs_test {
namespace {

namespace fs = std::filesystem;
using composer::test::logs::difference;
using composer::test::logs::disk_loggers;
using composer::test::logs::DiskLogger;
using composer::test::logs::Lines;

constexpr std::int64_t kBatches = 24;  // of a run; a checkpoint every five, an evaluation every four

// Kills the process at the end of a batch, with what was logged before it on the disk if `flushes`.
class Killer final : public Callback {
 public:
  Killer(std::int64_t batch, bool flushes) : batch_(batch), flushes_(flushes) {}
  void batch_end(const State& state, Logger& logger) override {
    if (state.timestamp.batch != batch_) return;
    if (flushes_) logger.flush();
    ::raise(SIGKILL);
  }

 private:
  std::int64_t batch_;
  bool flushes_;
};

struct Start {
  std::string run_name = "tiny";  // empty: the run has none
  std::int64_t killed_at = -1;    // batch; -1: it ends
  bool flushes = false;
};

TrainerOptions options_of(const DiskLogger& logger, const fs::path& folder, const std::string& run_name) {
  TrainerOptions options = composer::test::tiny_options();
  options.max_duration = "6ep";
  options.eval_dataloader = composer::test::tiny_loader(6, 4);
  options.run_name = run_name;
  options.save_folder = folder / "checkpoints";
  options.save_interval = "5ba";
  options.auto_log_hparams = false;
  logger.add(options.loggers, folder);
  return options;
}

// The process, which may be killed, of one start of the run.
bool starts(const DiskLogger& logger, const fs::path& folder, const Start& start) {
  const int status = composer::test::status_of_child([&] {
    use_threads_here(1);
    const composer::test::Warnings warnings;
    TrainerOptions options = options_of(logger, folder, start.run_name);
    if (start.killed_at >= 0) options.callbacks.add(std::make_shared<Killer>(start.killed_at, start.flushes));
    Trainer trainer(std::move(options));
    trainer.fit();
    trainer.close();
  });
  if (start.killed_at >= 0) return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  return composer::test::ended_well(status);
}

Lines log_of(const DiskLogger& logger, const std::string& run_name, const std::vector<Start>& killed = {}) {
  const composer::test::Folder folder;
  for (Start start : killed) {
    CAPTURE(start.killed_at);
    start.run_name = run_name;
    CHECK(starts(logger, folder.path(), start));
  }
  CHECK(starts(logger, folder.path(), {.run_name = run_name}));
  return logger.read(folder.path());
}

// Before the first checkpoint, twice between two checkpoints, at one, and within the last epoch.
const std::vector<Start> kStarts = {{"", 3, true},  {"", 2, true},  {"", 13, true}, {"", 14, false},
                                    {"", 12, true}, {"", 15, true}, {"", 22, true}};

TEST_CASE("A run that was killed at awkward moments has the log of a run that was not") {
  for (const DiskLogger& logger : disk_loggers()) {
    CAPTURE(logger.name);
    for (const char* run_name : {"tiny", ""}) {
      CAPTURE(run_name);
      const Lines whole = log_of(logger, run_name);
      CHECK(whole.size() >= kBatches);
      CHECK(difference(log_of(logger, run_name, kStarts), whole) == "");
    }
  }
}

TEST_CASE("A run that was killed at random moments has the log of a run that was not") {
  std::mt19937 random(20'261'127);
  for (const DiskLogger& logger : disk_loggers()) {
    CAPTURE(logger.name);
    std::vector<Start> killed;
    std::int64_t reached = 0;  // the newest checkpoint
    while (killed.size() < 6) {
      const std::int64_t next = reached + 1 + static_cast<std::int64_t>(random() % 7);
      if (next > kBatches) break;
      killed.push_back({"", next, random() % 2 == 0});
      reached = std::max(reached, (next - 1) / 5 * 5);
    }
    CHECK(difference(log_of(logger, "tiny", killed), log_of(logger, "tiny")) == "");
  }
}

TEST_CASE("A run that was killed goes on with its log while a child that it had forked lives") {
  for (const DiskLogger& logger : disk_loggers()) {
    CAPTURE(logger.name);
    const composer::test::Folder folder;
    const auto hold = [&](const std::function<void()>& be_killed) {
      use_threads_here(1);
      const composer::test::Warnings warnings;
      TrainerOptions options = options_of(logger, folder.path(), "tiny");
      options.callbacks.add(on(Event::BATCH_END, [&](const State& state, Logger& log) {
        if (state.timestamp.batch != 7) return;
        log.flush();
        be_killed();
      }));
      Trainer(std::move(options)).fit();
    };
    composer::test::with_child_left_behind(hold, [&] { CHECK(starts(logger, folder.path(), {.run_name = "tiny"})); });
    CHECK(difference(logger.read(folder.path()), log_of(logger, "tiny")) == "");
  }
}

}  // namespace
}  // namespace composer::loggers::killed_runs_test
