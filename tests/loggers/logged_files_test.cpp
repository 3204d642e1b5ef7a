// One rule for the files of Logger::upload_file(), at every logger that stores them.
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>

#include "composer/core/error.h"
#include "composer/loggers/logged_file.h"
#include "composer/loggers/mlflow_logger.h"
#include "composer/loggers/remote_uploader.h"
#include "composer/loggers/wandb_logger.h"
#include "composer/trainer/trainer.h"
#include "tests/loggers/wandb_reader.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::loggers::logged_files_test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOtherContents =
    "x exists with other contents; set overwrite to replace it, or upload the file by another name";

std::string write(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

fs::path only_mlflow(const fs::path& store) {
  std::vector<fs::path> runs;
  for (const auto& experiment : fs::directory_iterator(store))
    for (const auto& run : fs::directory_iterator(experiment.path()))
      if (run.is_directory()) runs.push_back(run.path());
  REQUIRE(runs.size() == 1);
  return runs[0];
}

// A logger that stores files, where it does, and how many values of the metric "m" it has.
struct Destination {
  std::string name;
  std::function<std::unique_ptr<LoggerDestination>(const fs::path& folder)> make;
  std::function<fs::path(const fs::path& folder)> files;
  std::function<std::size_t(const fs::path& folder)> values;
  std::string lost;  // the warning at the end, of one file
};

std::vector<Destination> destinations(LogFailure on_failure = LogFailure::CONTINUE) {
  constexpr Seconds never(3600);  // all records are written together
  return {
      {"WandBLogger",
       [=](const fs::path& folder) {
         return std::make_unique<WandBLogger>(WandBLoggerOptions{
             .folder = folder, .log_artifacts = true, .flush_interval = never, .on_failure = on_failure});
       },
       [](const fs::path& folder) { return test::wandb_runs(folder).at(0) / "files"; },
       [](const fs::path& folder) {
         return test::read_wandb_file(test::wandb_file_in(test::wandb_runs(folder).at(0))).steps("m").size();
       },
       "1 records could not be written"},
      {"MLFlowLogger",
       [=](const fs::path& folder) {
         return std::make_unique<MLFlowLogger>(MLFlowLoggerOptions{.tracking_uri = folder / "mlruns",
                                                                   .log_artifacts = true,
                                                                   .flush_interval = never,
                                                                   .on_failure = on_failure});
       },
       [](const fs::path& folder) { return only_mlflow(folder / "mlruns") / "artifacts"; },
       [](const fs::path& folder) {
         std::ifstream lines(only_mlflow(folder / "mlruns") / "metrics/m");
         std::size_t count = 0;
         for (std::string line; std::getline(lines, line);) ++count;
         return count;
       },
       "1 records could not be written"},
      {"RemoteUploader",
       [=](const fs::path& folder) {
         return std::make_unique<RemoteUploader>(
             RemoteUploaderOptions{.uri = "file://" + (folder / "up").string(), .on_failure = on_failure});
       },
       [](const fs::path& folder) { return folder / "up"; },
       [](const fs::path&) -> std::size_t { return 2; },  // it ignores metrics
       "1 file was not uploaded"},
  };
}

struct Run {
  explicit Run(std::unique_ptr<LoggerDestination> made) : to(std::move(made)) {
    state.run_name = "r";
    to->init(state, logger);
  }
  void close() { to->close(state, logger); }
  State state;
  std::unique_ptr<LoggerDestination> to;
  Logger logger{state, {to.get()}};
};

TEST_CASE("A logged file whose name exists is replaced with overwrite; without, other contents are its loss alone") {
  for (const Destination& destination : destinations()) {
    CAPTURE(destination.name);
    const test::Folder folder;
    const test::Warnings warnings;
    const std::string one = write(folder / "a", "one"), two = write(folder / "b", "two");
    Run run(destination.make(folder.path()));
    run.logger.log_metrics({{"m", 1.0}}, 1);
    for (const std::string& path : {one, one, two}) run.logger.upload_file({.path = path, .name = "x"});
    run.logger.log_metrics({{"m", 2.0}}, 2);
    run.to->flush();
    CHECK(test::content_of(destination.files(folder.path()) / "x") == "one");
    run.logger.upload_file({.path = two, .name = "x", .overwrite = true});
    run.close();
    CHECK(test::content_of(destination.files(folder.path()) / "x") == "two");
    CHECK(destination.values(folder.path()) == 2);
    CHECK(warnings.say(kOtherContents));
    CHECK(warnings.say(destination.lost));
  }
}

TEST_CASE("A logged file that cannot be stored is lost alone") {
  for (const Destination& destination : destinations()) {
    CAPTURE(destination.name);
    const test::Folder folder;
    const test::Warnings warnings;
    Run run(destination.make(folder.path()));
    run.logger.log_metrics({{"m", 1.0}}, 1);
    for (const char* name : {"x", "x/below_a_file", "y"})
      run.logger.upload_file({.path = write(folder / "a", "one"), .name = name});
    run.logger.log_metrics({{"m", 2.0}}, 2);
    run.close();
    CHECK(test::content_of(destination.files(folder.path()) / "y") == "one");
    CHECK(destination.values(folder.path()) == 2);
    CHECK(warnings.say("x/below_a_file"));
    CHECK(warnings.say(destination.lost));
  }
}

TEST_CASE("With on_failure FAIL a logged file that exists with other contents ends the run with an error") {
  for (const Destination& destination : destinations(LogFailure::FAIL)) {
    CAPTURE(destination.name);
    const test::Folder folder;
    const test::Warnings warnings;
    Run run(destination.make(folder.path()));
    for (const char* text : {"one", "two"}) {
      run.logger.upload_file({.path = write(folder / text, text), .name = "x"});
    }
    const auto end = [&] {
      run.to->flush();
      run.close();
    };
    CHECK_THROWS_AS(end(), Error);
  }
}

TEST_CASE("A resumed run that logs its file again keeps every step and the file") {
  const test::Folder folder;
  const test::Warnings warnings;
  const std::string notes = write(folder / "notes.txt", "notes");
  for (const std::int64_t epochs : {1, 2, 3}) {
    TrainerOptions options = test::tiny_options();
    options.max_duration = Time(epochs, TimeUnit::EPOCH);
    options.save_folder = folder / "checkpoints";
    options.loggers.add(WandBLogger({.folder = folder.path(), .log_artifacts = true}));
    options.loggers.add(MLFlowLogger({.tracking_uri = folder / "mlruns", .log_artifacts = true}));
    options.loggers.add(RemoteUploader({.uri = "file://" + (folder / "up").string()}));
    options.callbacks.add(on(Event::FIT_START, [&](const State&, Logger& logger) {
      logger.upload_file({.path = notes, .name = "notes.txt"});
    }));
    Trainer(std::move(options)).fit();
  }
  const fs::path wandb = test::wandb_runs(folder.path()).at(0), mlflow = only_mlflow(folder / "mlruns");
  CHECK(test::wandb_runs(folder.path()).size() == 1);
  CHECK(test::read_wandb_file(test::wandb_file_in(wandb)).steps("loss/train/total").size() == 12);
  for (const fs::path& where : {wandb / "files", mlflow / "artifacts", folder / "up"})
    CHECK(test::content_of(where / "notes.txt") == "notes");
  for (const std::string& text : warnings.texts) {
    CAPTURE(text);
    CHECK(text.find("notes.txt") == std::string::npos);
    CHECK(text.find("missing") == std::string::npos);
  }
}

TEST_CASE("same_contents() compares files of any length byte by byte") {
  const test::Folder folder;
  const std::string longest(2'500'000, 'a');
  const std::string a = write(folder / "a", longest);
  CHECK(same_contents(a, write(folder / "b", longest)));
  CHECK_FALSE(same_contents(a, write(folder / "b", longest.substr(1))));
  for (const std::size_t at : {std::size_t{0}, longest.size() / 2, longest.size() - 1}) {
    std::string other = longest;
    other[at] = 'b';
    CHECK_FALSE(same_contents(a, write(folder / "b", other)));
  }
  CHECK(same_contents(write(folder / "a", ""), write(folder / "b", "")));
  CHECK_THROWS_AS(same_contents(a, folder / "missing"), Error);
}

}  // namespace
}  // namespace composer::loggers::logged_files_test
