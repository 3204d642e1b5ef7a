// The logs of a run of two ranks, at every logger that writes to a disk: one log, of rank 0, unless {rank} is in the
// path; also after a restart.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "composer/core/error.h"
#include "composer/trainer/trainer.h"
#include "tests/dist/results_in_ranks.h"
#include "tests/loggers/disk_loggers.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::loggers::rank_logs_test {
namespace {

namespace fs = std::filesystem;
using composer::test::Folder;
using composer::test::logs::disk_loggers;
using composer::test::logs::Lines;

using AddLogger = std::function<void(Loggers&)>;

// Trains up to there, from where the run has got to; stops dead before the batch `cut`, if that is not negative.
// Returns what the ranks warned of.
std::vector<Lines> train(const Folder& folder, const AddLogger& add, Time until, std::int64_t cut = -1) {
  return dist::test::results_in_ranks(2,
                                      [&](const std::shared_ptr<dist::World>& world) {
                                        const composer::test::Warnings warnings;
                                        TrainerOptions options = composer::test::tiny_options();
                                        options.max_duration = until;
                                        options.auto_log_hparams = false;
                                        options.save_folder = folder / "checkpoints";
                                        options.save_interval = "3ba";
                                        options.world = world;
                                        add(options.loggers);
                                        Trainer trainer(std::move(options));
                                        if (cut < 0) {
                                          trainer.fit();
                                        } else {
                                          trainer.begin();
                                          while (trainer.state().timestamp.batch < cut && trainer.step()) {
                                          }
                                        }
                                        trainer.close();
                                        return warnings.texts;
                                      },
                                      {.collective_timeout = std::chrono::seconds(60)});
}

// Of batches, without the mean of the epoch.
std::size_t losses_in(const Lines& lines) {
  return static_cast<std::size_t>(std::ranges::count_if(lines, [](const std::string& line) {
    constexpr std::string_view kLoss = "loss/train/total";
    std::size_t at = line.find(kLoss);
    while (at != std::string::npos && line.substr(at + kLoss.size()).starts_with("_epoch"))
      at = line.find(kLoss, at + 1);
    return at != std::string::npos;
  }));
}

TEST_CASE("Two ranks write one log, that of rank 0, also after they were cut off and started again") {
  for (const auto& logger : disk_loggers()) {
    CAPTURE(logger.name);
    const Folder folder;
    const AddLogger add = [&](Loggers& to) { logger.add(to, folder / "logs"); };
    Lines said;
    const auto note = [&](const std::vector<Lines>& by_rank) {
      for (const Lines& texts : by_rank) said.insert(said.end(), texts.begin(), texts.end());
    };
    note(train(folder, add, "1ep"));
    CHECK(losses_in(logger.read(folder / "logs")) == 4);
    note(train(folder, add, "3ep", /*cut=*/11));
    note(train(folder, add, "3ep"));
    CHECK(losses_in(logger.read(folder / "logs")) == 12);
    for (const std::string& text : said) CHECK(text.find(logger.name) == std::string::npos);
    for (const auto& entry : fs::directory_iterator(folder / "logs")) CHECK(entry.path().extension() != ".1");
  }
}

TEST_CASE("With {rank} in the path, each rank writes a log of lines") {
  const Folder folder;
  train(
      folder,
      [&](Loggers& to) {
        to.add(CsvLogger({.path = folder / "{rank}.csv"}));
        to.add(FileLogger({.path = folder / "{rank}.txt"}));
        to.add(JsonLinesLogger({.path = folder / "{rank}.jsonl"}));
      },
      "1ep");
  for (const std::string rank : {"0", "1"}) {
    CHECK(losses_in(composer::test::logs::csv_lines(folder / (rank + ".csv"))) == 4);
    CHECK(losses_in(composer::test::logs::lines_of(folder / (rank + ".txt"))) == 4);
    CHECK(losses_in(composer::test::logs::json_lines(folder / (rank + ".jsonl"))) == 4);
  }
}

}  // namespace
}  // namespace composer::loggers::rank_logs_test
