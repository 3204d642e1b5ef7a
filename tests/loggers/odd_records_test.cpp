// What a run may log, at every logger that writes to a disk: keys and texts that are not UTF-8, have 250 characters,
// leave the folder, or are a folder of others. Each costs no other key its values, the log stays readable, nothing is
// written elsewhere; and a log ends where the trainer is closed.
#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "composer/core/error.h"
#include "composer/loggers/json_text.h"
#include "tests/loggers/disk_loggers.h"
#include "tests/support/doctest.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::loggers::odd_records_test {
namespace {

namespace fs = std::filesystem;
using composer::test::Folder;
using composer::test::Warnings;
using composer::test::logs::disk_loggers;
using composer::test::logs::DiskLogger;
using composer::test::logs::Lines;

const std::vector<std::string> kOddKeys = {
    "loss",   "loss/train", "caf\xe9", "caf\xc3\xa9",          std::string(250, 'k'), "../x",
    "/abs/x", ".",          "a\nb",    std::string("a\0b", 3), "quote\"d, key",       "\x1b[31mred"};

TrainerOptions options_in(const Folder& folder, const DiskLogger& logger) {
  TrainerOptions options = composer::test::tiny_options();
  options.auto_log_hparams = false;
  logger.add(options.loggers, folder / "logs");
  return options;
}

// How many values of training's loss there are, without the mean of the epoch.
std::size_t losses_in(const Lines& lines) {
  return static_cast<std::size_t>(std::ranges::count_if(lines, [](const std::string& line) {
    const std::size_t at = line.find("loss/train/total");
    return at != std::string::npos && line.find("total_epoch") == std::string::npos &&
           !line.starts_with("[hyperparameter]");
  }));
}

// All that is below, but for the folder of the logs.
std::set<std::string> elsewhere(const fs::path& folder) {
  std::set<std::string> names;
  for (fs::recursive_directory_iterator it(folder), end; it != end; ++it)
    if (it->path().lexically_relative(folder) == "logs")
      it.disable_recursion_pending();
    else
      names.insert(it->path().lexically_relative(folder));
  return names;
}

TEST_CASE("Odd keys and texts cost no other key its values, and leave a log that can be read, in its folder") {
  for (const DiskLogger& logger : disk_loggers()) {
    CAPTURE(logger.name);
    const Folder folder;
    const Warnings warnings;
    {
      TrainerOptions options = options_in(folder, logger);
      options.callbacks.add(on(Event::BATCH_END, [](const State& state, Logger& to) {
        for (const std::string& key : kOddKeys) {
          const LogEntry number{key, static_cast<double>(state.timestamp.batch)};
          to.log_metrics(std::span(&number, 1));
          const std::string name = "text of " + key;
          const LogEntry text{name, key};
          to.log_metrics(std::span(&text, 1));
        }
      }));
      options.callbacks.add(on(Event::FIT_START, [](const State&, Logger& to) {
        for (const std::string& key : kOddKeys) {
          const LogEntry text{key, key};
          to.log_hyperparameters(std::span(&text, 1));
        }
      }));
      Trainer trainer(std::move(options));
      trainer.fit();
      trainer.close();
    }
    const Lines lines = logger.read(folder / "logs");
    CHECK(losses_in(lines) == 4);
    for (const std::string& line : lines) CHECK(valid_utf8(line) == line);
    CHECK(elsewhere(folder.path()) == std::set<std::string>{});
    for (const std::string& text : warnings.texts) CHECK(text.find(logger.name) == std::string::npos);
  }
}

TEST_CASE("A run_name that leaves the folder is refused by every logger whose path contains it") {
  for (const char* name : {"../../evil", "/abs", "a/../../b"}) {
    CAPTURE(name);
    const Folder folder;
    const std::string path = (folder / "logs/{run_name}/log").string();
    const auto error = [&](const auto& logger) {
      return composer::test::error_of([&] {
        TrainerOptions options = composer::test::tiny_options();
        options.run_name = name;
        options.loggers.add(logger());
        Trainer(std::move(options)).fit();
      });
    };
    for (const std::string& text :
         {error([&] { return CsvLogger({.path = path}); }), error([&] { return FileLogger({.path = path}); }),
          error([&] { return JsonLinesLogger({.path = path}); }),
          error([&] { return TensorBoardLogger({.folder = path}); }),
          error([&] { return WandBLogger(WandBLoggerOptions{.folder = path}); })}) {
      CAPTURE(text);
      CHECK(text.find("leaves the folder that it is part of") != std::string::npos);
    }
    CHECK(fs::is_empty(folder.path()));
  }
}

TEST_CASE("What is logged after close() begins no second run, file or line") {
  for (const DiskLogger& logger : disk_loggers()) {
    CAPTURE(logger.name);
    const Folder folder;
    const Warnings warnings;
    Trainer trainer(options_in(folder, logger));
    trainer.fit();
    trainer.close();
    const auto all = [&] {
      std::set<std::string> files;
      for (const auto& entry : fs::recursive_directory_iterator(folder.path()))
        files.insert(entry.path().string() + (entry.is_regular_file() ? composer::test::text_of(entry.path()) : ""));
      return files;
    };
    const auto before = all();
    trainer.logger().log_metrics({{"late", 1.0}});
    trainer.logger().log_hyperparameters({{"late", 1.0}});
    trainer.logger().flush();
    CHECK(all() == before);
  }
}

}  // namespace
}  // namespace composer::loggers::odd_records_test
