// What is known of a checkpoint, and whether it stays: of one saved by hand, of one whose name was used again, of one
// whose batch has come again, and of the best after a kill.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "composer/checkpoint/saver.h"
#include "composer/core/error.h"
#include "composer/core/metric.h"
#include "tests/checkpoint/checkpoints.h"
#include "tests/support/at_algorithm.h"
#include "tests/support/doctest.h"
#include "tests/support/figure.h"
#include "tests/support/folder.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::test::kept_checkpoints_test {
namespace {

namespace fs = std::filesystem;
using saving::Best;
using saving::Manifest;
using saving::Saver;

StateDict small_state() {
  StateDict model, state;
  model["weight"] = at::zeros({3});
  state["model"] = model;
  return state;
}

void save(Saver& saver, const std::string& name, int batch, std::map<std::string, double> metrics = {}) {
  Manifest manifest;
  manifest.name = name;
  manifest.time.batch = batch;
  manifest.metrics = std::move(metrics);
  saver.plan(manifest);
  saver.save(manifest, small_state());
}

saving::SaverOptions best_in(const Folder& folder) {
  return {.folder = folder.path(),
          .best = Best{.metric = "eval/a", .better = Better::HIGHER},
          .asynchronous = false,
          .run_id = "run"};
}

StateDict state_of(Saver& saver) {
  StateDict state;
  StateVisitor visit = StateVisitor::saving(state);
  saver.visit_state(visit);
  return state;
}

std::map<std::string, double> metrics_of(const fs::path& checkpoint) {
  return saving::open_checkpoint(checkpoint).manifest.metrics;
}

TEST_CASE("Metrics are added to the checkpoint of their batch, and not to another that has its name since") {
  const Scratch scratch;
  write(scratch.path, 4, saving::real_files(), "last");
  saving::CheckpointFolder folder(scratch.path, "run", saving::real_files());
  CHECK_FALSE(folder.add_metrics("last", 3, {{"eval/a", 0.5}}));
  CHECK(metrics_of(scratch.path / "last").empty());
  CHECK(folder.add_metrics("last", 4, {{"eval/a", 0.5}}));
  CHECK(metrics_of(scratch.path / "last").at("eval/a") == 0.5);
}

TEST_CASE("A resumed run takes no value from a checkpoint of another batch that has the name since") {
  for (const int batch : {1, 2}) {
    CAPTURE(batch);
    const Folder folder;
    Saver before(best_in(folder));
    save(before, "last", 1);
    StateDict state = state_of(before);
    save(before, "last", batch, {{"eval/a", 0.9}});
    Saver resumed(best_in(folder));
    StateVisitor visit = StateVisitor::loading(state, "saver");
    resumed.visit_state(visit);
    CHECK((resumed.best() != nullptr) == (batch == 1));
  }
}

TEST_CASE("A value that a checkpoint has is not replaced by what another evaluation of its batch gives") {
  const Folder folder;
  Saver saver(best_in(folder));
  save(saver, "with", 1, {{"eval/a", 0.5}});
  save(saver, "without", 1);
  saver.add_metrics(1, {{"eval/a", 0.9}});
  const StateDict state = state_of(saver);
  StateVisitor visit = StateVisitor::loading(state, "saver");
  std::vector<double> values;
  visit("values", values);
  CHECK(values == std::vector<double>{0.5, 0.9});
  CHECK(saver.best()->name == "without");
  saver.finish();
  CHECK(metrics_of(folder / "with").at("eval/a") == 0.5);
  CHECK(metrics_of(folder / "without").at("eval/a") == 0.9);
}

TEST_CASE("After time was reset, an evaluation says nothing of the checkpoint of the same batch before") {
  const Folder folder;
  const auto figures = std::make_shared<Figures>(Figures{.by_batch = {{4, 0.9}, {8, 0.1}}});
  TrainerOptions options = tiny_options();
  options.max_duration.reset();
  options.save_folder = folder / "ck";
  options.save_interval = "8ba";
  options.save_best = Best{.metric = "eval/Figure", .better = Better::HIGHER};
  options.algorithms = {AtAlgorithm({}, [](State&) {})};  // might set the metric in the first fit
  options.callbacks = {At([=](Event event, const State& state) {
    if (event == Event::EVAL_START) figures->batch = state.timestamp.batch;
  })};
  const Warnings quiet;
  Trainer trainer(std::move(options));
  trainer.fit("1ep");
  const std::string before = trainer.saved_checkpoints().back();
  trainer.fit(
      {.duration = "8ba",
       .reset_time = true,
       .eval_dataloader = {
           {.label = "eval", .dataloader = tiny_loader(4, 4), .metrics = Metrics(Figure(figures, Better::HIGHER))}}});
  CHECK_FALSE(metrics_of(before).contains("eval/Figure"));
  REQUIRE(trainer.best_checkpoint());
  CHECK(*trainer.best_checkpoint() == trainer.saved_checkpoints().back());
}

TEST_CASE("A fit begins with a link that leads to the best checkpoint, wherever a killed process has left it") {
  const Folder folder;
  const auto figures = std::make_shared<Figures>(Figures{.by_batch = {{4, 0.1}, {8, 0.9}, {12, 0.2}}});
  const auto options = [&](const Time& until) {
    TrainerOptions all = tiny_options();
    all.max_duration = until;
    all.save_folder = folder / "ck";
    all.save_best = Best{.metric = "eval/Figure"};
    all.eval_dataloader = {
        {.label = "eval", .dataloader = tiny_loader(4, 4), .metrics = Metrics(Figure(figures, Better::HIGHER))}};
    all.callbacks = {At([=](Event event, const State& state) {
      if (event == Event::EVAL_START) figures->batch = state.timestamp.batch;
    })};
    return all;
  };
  const Warnings quiet;
  Trainer(options("2ep")).fit();
  const fs::path link = folder / "ck/best";
  for (const bool missing : {true, false}) {
    CAPTURE(missing);
    fs::remove(link);
    if (!missing) fs::create_directory_symlink("ep1-ba4", link);
    Trainer trainer(options("3ep"));
    trainer.begin();
    CHECK(fs::is_symlink(link));
    CHECK(fs::read_symlink(link) == "ep2-ba8");
  }
}

TEST_CASE("A run that fails after its first checkpoint leaves no lock behind") {
  const Folder folder;
  TrainerOptions options = tiny_options();
  options.save_folder = folder / "ck";
  options.save_interval = "2ba";
  options.callbacks = {At([](Event event, const State& state) {
    if (event == Event::BATCH_START && state.timestamp.batch == 3) throw Error("made to fail");
  })};
  CHECK_THROWS(Trainer(std::move(options)).fit());
  CHECK(fs::exists(folder / "ck/ep0-ba2"));
  for (const auto& entry : fs::directory_iterator(folder / "ck"))
    CHECK_FALSE(entry.path().filename().string().starts_with(".lock-"));
}

TEST_CASE("A run that goes back with another trainer keeps the later checkpoints that were saved by hand") {
  const Folder folder;
  const auto one = [&](const std::string& name, const std::string& other) {
    TrainerOptions options = tiny_options();
    options.run_name = name;
    options.max_duration = "2ep";
    options.save_folder = folder / name;
    options.save_interval = "2ba";
    options.save_async = false;
    options.resume_with = {folder / other};
    return options;
  };
  {
    Trainer first(one("first", "second")), second(one("second", "first"));
    first.begin(), second.begin();
    while (first.step()) {
      second.step();
      if (first.state().timestamp.batch == 6) first.save_checkpoint("by hand");
    }
    first.end(), second.end();
  }
  for (const char* later : {"second/ep1-ba6", "second/ep1-ba8", "second/ep2-ba8"}) fs::remove_all(folder / later);
  const Warnings quiet;
  Trainer first(one("first", "second"));
  const Trainer second(one("second", "first"));
  REQUIRE(first.state().timestamp.batch == 4);
  first.begin();
  CHECK_FALSE(fs::exists(folder / "first/ep1-ba6"));
  CHECK(fs::exists(folder / "first/by hand/manifest.json"));
}

}  // namespace
}  // namespace composer::test::kept_checkpoints_test
