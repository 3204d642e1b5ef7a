// Loggers of services in real fits: how their runs end, and how they are resumed.
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "composer/core/error.h"
#include "composer/loggers/mlflow_logger.h"
#include "composer/loggers/wandb_logger.h"
#include "composer/optim/adam.h"
#include "composer/trainer/trainer.h"
#include "tests/loggers/wandb_reader.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/sandbox.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::loggers::service_runs_test {
namespace {

namespace fs = std::filesystem;

struct Thrown : std::runtime_error {
  Thrown() : std::runtime_error("thrown by the test") {}
};

// Three epochs of four batches, with a checkpoint of each.
TrainerOptions options(const test::Folder& folder) {
  TrainerOptions options = test::tiny_options();
  options.max_duration = "3ep";
  options.save_folder = folder / "checkpoints";
  options.eval_dataloader = test::tiny_loader(6, 4);
  options.loggers.add(WandBLogger({.folder = folder.path()}));
  options.loggers.add(MLFlowLogger({.tracking_uri = folder / "mlruns"}));
  return options;
}

// Calls a function once, when so many batches are trained.
template <class Call>
std::shared_ptr<Callback> at_batch(std::int64_t batch, const Call& call) {
  return std::make_shared<test::At>([=](Event event, const State& state) {
    if (event == Event::BATCH_START && state.timestamp.batch == batch) call();
  });
}

test::WandBFile only_wandb(const test::Folder& folder) {
  const auto runs = test::wandb_runs(folder.path());
  REQUIRE(runs.size() == 1);
  return test::read_wandb_file(test::wandb_file_in(runs[0]));
}

fs::path only_mlflow(const test::Folder& folder) {
  std::vector<fs::path> runs;
  for (const auto& experiment : fs::directory_iterator(folder / "mlruns"))
    for (const auto& run : fs::directory_iterator(experiment.path()))
      if (run.is_directory()) runs.push_back(run.path());
  REQUIRE(runs.size() == 1);
  return runs[0];
}

// FINISHED is 3, FAILED 4, KILLED 5.
bool has_status(const fs::path& run, int status) {
  return test::content_of(run / "meta.yaml").find(join("\nstatus: ", status, '\n')) != std::string::npos;
}

std::vector<std::int64_t> mlflow_steps(const fs::path& run, const std::string& key) {
  std::vector<std::int64_t> steps;
  std::istringstream lines(test::content_of(run / "metrics" / key));
  std::string time, value;
  for (std::int64_t step = 0; lines >> time >> value >> step;) steps.push_back(step);
  return steps;
}

constexpr const char* kLoss = "loss/train/total";

// The names of what is in it, each followed by the content of the file.
std::vector<std::string> files_below(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    names.push_back(entry.path().lexically_relative(folder).string() +
                    (entry.is_regular_file() ? test::content_of(entry.path()) : ""));
  std::ranges::sort(names);
  return names;
}

TEST_CASE("A resumed run that does not come to a fit leaves its logs as they are, and says its own error") {
  const test::Folder folder;
  {
    Trainer trainer(options(folder));
    trainer.fit();
  }
  const test::Sandbox here;
  std::ofstream("meta.yaml") << "of the user";
  const auto wandb = files_below(test::wandb_runs(folder.path())[0]), mlflow = files_below(folder / "mlruns");
  const test::Warnings warnings;
  SUBCASE("because it only evaluates") {
    Trainer trainer(options(folder));
    trainer.eval();
    trainer.close();
  }
  SUBCASE("because nothing is asked for") { Trainer trainer(options(folder)); }
  SUBCASE("because the checkpoint does not fit") {
    TrainerOptions other = options(folder);
    other.optimizer = optim::adamw({.lr = 0.1});
    const auto fit = [&] {
      Trainer trainer(std::move(other));
      trainer.fit();
    };
    CHECK_THROWS_WITH(fit(), doctest::Contains("optimizer"));
  }
  CHECK(test::content_of("meta.yaml") == "of the user");
  CHECK(std::distance(fs::directory_iterator("."), fs::directory_iterator()) == 1);
  CHECK(files_below(test::wandb_runs(folder.path())[0]) == wandb);
  CHECK(files_below(folder / "mlruns") == mlflow);
}

TEST_CASE("Points that precede a checkpoint are in MLflow's folder when it is written") {
  const test::Folder folder;
  TrainerOptions killed = options(folder);
  std::vector<std::int64_t> steps;
  killed.save_interval = "2ba";
  killed.callbacks.add(std::make_shared<test::At>([&](Event event, const State& state) {
    // The checkpoint of batch 2 has been written; nothing else has woken the writer, which waits for ten seconds.
    if (event == Event::BATCH_START && state.timestamp.batch == 3) steps = mlflow_steps(only_mlflow(folder), kLoss);
  }));
  Trainer trainer(std::move(killed));
  trainer.fit();
  CHECK(steps == std::vector<std::int64_t>{0, 1});
}

TEST_CASE("A fit that throws ends its runs as failed, and the resumed fit continues them without a step twice") {
  const test::Folder folder;
  {
    TrainerOptions failing = options(folder);
    failing.callbacks.add(at_batch(6, [] { throw Thrown(); }));
    Trainer trainer(std::move(failing));
    CHECK_THROWS_AS(trainer.fit(), RunError);
  }
  const test::WandBFile failed = only_wandb(folder);
  CHECK(failed.exit_code() == 1);
  CHECK(failed.steps(kLoss).size() >= 5);
  CHECK(has_status(only_mlflow(folder), 4));
  const test::Warnings warnings;
  {
    Trainer trainer(options(folder));
    trainer.fit();
    CHECK(trainer.state().timestamp.batch == 12);
  }
  const test::WandBFile resumed = only_wandb(folder);
  CHECK(resumed.run().text(1) == failed.run().text(1));
  CHECK(resumed.exit_code() == 0);
  std::vector<std::int64_t> every;
  for (std::int64_t step = 0; step < 12; ++step) every.push_back(step);
  CHECK(resumed.steps(kLoss) == every);
  CHECK(resumed.steps("metrics/eval/MulticlassAccuracy") == std::vector<std::int64_t>{4, 8, 12});
  CHECK(has_status(only_mlflow(folder), 3));
  CHECK(mlflow_steps(only_mlflow(folder), kLoss) == every);
  for (const std::string& text : warnings.texts) CHECK(text.find("Logger") == std::string::npos);
}

TEST_CASE("A fit that a signal ends leaves runs that are killed") {
  const test::Folder folder;
  {
    TrainerOptions killed = options(folder);
    killed.handle_signals = true;
    killed.callbacks.add(at_batch(6, [] { std::raise(SIGTERM); }));
    Trainer trainer(std::move(killed));
    const test::Warnings warnings;
    trainer.fit();
    CHECK(trainer.state().timestamp.batch < 12);
  }
  CHECK(only_wandb(folder).exit_code() == 255);
  CHECK(has_status(only_mlflow(folder), 5));
}

TEST_CASE("A signal in the last evaluation of a fit leaves runs that are killed") {
  const test::Folder folder;
  {
    TrainerOptions killed = options(folder);
    killed.max_duration = "2ba";
    killed.handle_signals = true;
    killed.callbacks.add(test::At([](Event event, const State&) {
      if (event == Event::EVAL_START) std::raise(SIGTERM);
    }));
    Trainer trainer(std::move(killed));
    const test::Warnings warnings;
    trainer.fit();
    CHECK(trainer.interrupted_by() == SIGTERM);
  }
  CHECK(only_wandb(folder).exit_code() == 255);
  CHECK(has_status(only_mlflow(folder), 5));
}

}  // namespace
}  // namespace composer::loggers::service_runs_test
