// What is known of a checkpoint, and whether it stays: of one saved by hand, of one whose name was used again, of one
// whose batch has come again, and of the best after a kill.
#include <algorithm>
#include <cmath>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "composer/algorithms/swa.h"
#include "composer/callbacks/checkpoint_saver.h"
#include "composer/checkpoint/folder.h"
#include "composer/checkpoint/saver.h"
#include "composer/core/error.h"
#include "composer/core/metric.h"
#include "composer/core/model_access.h"
#include "composer/core/stop.h"
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
  saver.plan(manifest, {.weights = static_cast<std::uint64_t>(batch)});
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

TEST_CASE("Metrics are added to the checkpoint that they are of, and not to another that has its name since") {
  const Scratch scratch;
  write(scratch.path, 4, saving::real_files(), "last");
  saving::CheckpointFolder folder(scratch.path, "run", saving::real_files());
  CHECK_FALSE(folder.add_metrics("last", "3", {{"eval/a", 0.5}}));
  CHECK(metrics_of(scratch.path / "last").empty());
  CHECK(folder.add_metrics("last", "4", {{"eval/a", 0.5}}));
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
    CHECK((resumed.list().best() != nullptr) == (batch == 1));
  }
}

TEST_CASE("A value that a checkpoint has is not replaced by what another evaluation of its batch gives") {
  const Folder folder;
  Saver saver(best_in(folder));
  save(saver, "with", 1, {{"eval/a", 0.5}});
  save(saver, "without", 1);
  saver.list().add_metrics(1, {{"eval/a", 0.9}});
  const StateDict state = state_of(saver);
  StateVisitor visit = StateVisitor::loading(state, "saver");
  std::vector<double> values;
  visit("values", values);
  CHECK(values == std::vector<double>{0.5, 0.9});
  CHECK(saver.list().best()->name == "without");
  saver.write_notes();
  saver.link_best();
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

using Names = std::vector<std::string>;
using callbacks::CheckpointSaver;

struct Killed : std::exception {};

At at(Event when, std::int64_t batch, std::function<void(const State&)> act) {
  return At([=](Event event, const State& state) {
    if (event == when && state.timestamp.batch == batch) act(state);
  });
}

void scale(const State& state, double by) {
  const at::NoGradGuard no_grad;
  for (const at::Tensor& weight : parameters(as_module(*state.model))) weight.mul_(by);
}

double weight_of(const fs::path& checkpoint) {
  const StateDict all = saving::load(saving::open_checkpoint(checkpoint));
  return std::get<at::Tensor>(std::get<StateDict>(all.entries().back().second).entries().front().second)
      .flatten()[0]
      .item<double>();
}

// By name: the id of each checkpoint below a folder, oldest first.
std::vector<std::pair<std::string, std::string>> ids_in(const fs::path& folder) {
  std::vector<std::pair<std::string, std::string>> ids;
  for (const saving::Found& found : saving::list_checkpoints(folder))
    ids.emplace_back(found.path.filename(), found.manifest.id);
  return ids;
}

Names names_in(const fs::path& folder) {
  Names names;
  for (const auto& [name, id] : ids_in(folder)) names.push_back(name);
  return names;
}

TrainerOptions followed(const Folder& folder) {
  TrainerOptions options = tiny_options();
  options.save_folder = folder / "ck";
  options.eval_dataloader = tiny_loader(8, 4);
  options.save_best = Best{.metric = "eval/CrossEntropy"};
  return options;
}

TEST_CASE("A complete run that is started again writes nothing, also if its program sets other weights") {
  for (const bool sets : {false, true}) {
    CAPTURE(sets);
    const Folder folder;
    const Warnings quiet;
    std::vector<std::vector<std::pair<std::string, std::string>>> before;
    for (const bool again : {false, true}) {
      TrainerOptions options = followed(folder);
      for (const char* interval : {"1ep", "3ba"})
        options.callbacks.add(CheckpointSaver(
            {.folder = folder / interval, .save_interval = Time::parse(interval), .weights_only = true}));
      Trainer trainer(std::move(options));
      if (again && sets) scale(trainer.state(), -3);
      trainer.fit();
      std::vector<std::vector<std::pair<std::string, std::string>>> now;
      for (const char* name : {"ck", "1ep", "3ba"}) now.push_back(ids_in(folder / name));
      if (again) CHECK(now == before);
      before = now;
    }
    CHECK(before[2].back().first == "ep1-ba4");
  }
}

TEST_CASE("The best checkpoint keeps its weights, its value and its name when the run saves others at its moment") {
  struct Row {
    const char* how;
    std::string name, filename;
    Names names;
  };
  const std::vector<Row> rows = {{"an algorithm", "ba4", "ba{batch}", {"ba4", "ba4-2"}},
                                 {"a pause", "ep1-ba4", "ep{epoch}-ba{batch}", {"ep1-ba4", "ep1-ba4-2", "ep1-ba5"}},
                                 {"by hand", "ep1-ba4", "ep{epoch}-ba{batch}", {"ep1-ba4", "ep1-ba4-2"}},
                                 {"reset_time", "ep1-ba4", "ep{epoch}-ba{batch}", {"ep1-ba4", "ep1-ba4-2"}}};
  for (const Row& row : rows) {
    CAPTURE(row.how);
    const std::string how = row.how;
    const Folder folder;
    const Warnings quiet;
    TrainerOptions options = followed(folder);
    options.save_filename = row.filename;
    if (how == "an algorithm") {
      options.save_interval = options.eval_interval = "4ba";
      options.algorithms = {AtAlgorithm({Event::EPOCH_END}, [](State& state) { scale(state, -4); })};
    }
    if (how == "a pause") options.max_duration = "2ep";
    if (how == "a pause") options.callbacks = {at(Event::EPOCH_END, 4, [](const State& s) { s.stop.ask("a pause"); })};
    Trainer trainer(std::move(options));
    trainer.fit();
    if (how != "an algorithm") scale(trainer.state(), -4);
    std::string id = saving::open_checkpoint(folder / "ck" / row.name).manifest.id;
    if (how == "a pause") trainer.fit("1ba");
    if (how == "by hand") CHECK(trainer.save_checkpoint() == folder / "ck/ep1-ba4-2");
    if (how == "reset_time") trainer.fit({.duration = "1ep", .reset_time = true});
    CHECK(names_in(folder / "ck") == row.names);
    CHECK(saving::open_checkpoint(folder / "ck" / row.name).manifest.id == id);
    CHECK(metrics_of(folder / "ck" / row.name).contains("eval/CrossEntropy"));
    CHECK(weight_of(folder / "ck" / row.name) > 0);
    CHECK(weight_of(folder / "ck" / row.names[1]) < 0);
    CHECK(fs::read_symlink(folder / "ck/best") == row.name);
    CHECK(fs::read_symlink(folder / "ck/latest") == row.names.back());
    CHECK(*trainer.best_checkpoint() == folder / "ck" / row.name);
  }
}

TEST_CASE("A checkpoint that was saved by hand stays when a periodic one of other weights has its name") {
  const Folder folder;
  TrainerOptions options = followed(folder);
  options.save_best.reset();
  options.save_num_checkpoints_to_keep = 1;
  options.max_duration = "2ep";
  Trainer trainer(std::move(options));
  trainer.save_checkpoint("ep1-ba4");
  trainer.fit("1ep");
  CHECK(names_in(folder / "ck") == Names{"ep1-ba4", "ep1-ba4-2"});
  CHECK(weight_of(folder / "ck/ep1-ba4") == 1);
  trainer.fit("1ep");
  CHECK(names_in(folder / "ck") == Names{"ep1-ba4", "ep2-ba8"});
}

TEST_CASE(
    "A checkpoint that a program saves by hand under the name of a periodic one stays, also after a kill before") {
  for (const bool is_killed : {false, true}) {
    const Folder folder;
    const Warnings quiet;
    struct Killed {};
    const auto program = [&](bool dies) {
      TrainerOptions options = followed(folder);
      options.save_best.reset();
      options.save_num_checkpoints_to_keep = 1;
      options.max_duration = {};
      Trainer trainer(std::move(options));
      trainer.fit("1ep");
      if (dies) throw Killed();
      CHECK(trainer.save_checkpoint("ep{epoch}-ba{batch}") == folder / "ck/ep1-ba4");
      trainer.fit("2ep");
    };
    if (is_killed) CHECK_THROWS_AS(program(true), Killed);
    program(false);
    CHECK(names_in(folder / "ck") == Names{"ep1-ba4", "ep3-ba12"});
  }
}

TEST_CASE("After going back, a run replaces and deletes no later checkpoint that was saved by hand") {
  const Folder folder;
  const Warnings quiet;
  const auto one = [&](const std::string& own, const std::string& other) {
    TrainerOptions options = tiny_options();
    options.run_name = own;
    options.max_duration = "4ep";
    options.save_folder = folder / own;
    options.save_interval = "2ba";
    options.save_num_checkpoints_to_keep = 3;
    options.resume_with = {folder / other};
    return options;
  };
  {
    Trainer first(one("a", "b")), second(one("b", "a"));
    first.begin(), second.begin();
    for (int batch = 0; batch < 3; ++batch) first.step(), second.step();
    first.step();
    first.save_checkpoint("ep{epoch}-ba{batch}");  // the second one has no checkpoint of this batch
  }
  const std::string made = fs::exists(folder / "a/ep1-ba4") ? "ep1-ba4" : "ep0-ba4";
  const std::string id = saving::open_checkpoint(folder / "a" / made).manifest.id;
  Trainer first(one("a", "b")), second(one("b", "a"));
  CHECK(first.state().timestamp.batch == 2);
  first.begin(), second.begin();
  while (first.step()) second.step();
  first.end();
  CHECK(saving::open_checkpoint(folder / "a" / made).manifest.id == id);
}

TEST_CASE(
    "A checkpoint that is saved before the first fit gets the value of its weights, before and after the fit begins") {
  for (const bool has_begun : {false, true}) {
    CAPTURE(has_begun);
    const Folder folder;
    TrainerOptions options = tiny_options();
    options.eval_dataloader = tiny_loader(8, 4);
    options.eval_interval = "0ep";
    options.save_folder = folder / "ck";
    options.save_best = Best{.metric = "eval/MulticlassAccuracy"};
    Trainer trainer(std::move(options));
    trainer.save_checkpoint("init");
    if (has_begun) trainer.begin();
    trainer.eval();
    if (!has_begun) trainer.begin();
    while (trainer.step()) {
    }
    trainer.end();
    CHECK(saving::open_checkpoint(folder / "ck/init").manifest.metrics.contains("eval/MulticlassAccuracy"));
    CHECK(*trainer.best_checkpoint() == folder / "ck/init");
  }
}

TEST_CASE("A trainer that never fits moves no link and writes no manifest, whatever another one trains meanwhile") {
  const Folder folder;
  const auto made = [&](Time until) {
    TrainerOptions options = tiny_options();
    options.max_duration = until;
    options.save_folder = folder / "ck";
    options.save_interval = "1ba";
    options.save_async = false;
    options.save_best = Best{.metric = "own/x", .better = Better::HIGHER};
    options.algorithms = {AtAlgorithm({Event::BATCH_END}, [](State& state) {
      state.metrics.set("own", "x", at::scalar_tensor(static_cast<double>(state.timestamp.batch)));
    })};
    return std::make_unique<Trainer>(std::move(options));
  };
  made("2ep")->fit();
  const fs::path early = folder / "ck/ep1-ba7";
  Manifest without = saving::open_checkpoint(early).manifest;  // as a kill leaves it before its value is noted
  without.metrics.clear();
  std::ofstream(early / "manifest.json") << without.to_json();
  const auto trains = made("4ep");
  trains->begin();
  auto looks = made("4ep");
  while (trains->step()) {
  }
  trains->end();
  CHECK(saving::open_checkpoint(early).manifest.metrics.contains("own/x"));  // by who trains
  const fs::path best = fs::read_symlink(folder / "ck/best");
  std::ofstream(early / "manifest.json") << without.to_json();
  looks.reset();
  CHECK(fs::read_symlink(folder / "ck/best") == best);
  CHECK(folder / "ck" / best == *trains->best_checkpoint());
  CHECK(saving::open_checkpoint(early).manifest.metrics.empty());
}

// What a run leaves is the same however it is killed and started again.
TEST_CASE("A run that is killed and started again has each of its weights once, under the same names") {
  const auto train = [](const Folder& folder, Event dies_at, std::int64_t batch) {
    TrainerOptions options = followed(folder);
    options.max_duration = "2ep";
    options.save_filename = "ba{batch}";
    options.save_interval = options.eval_interval = "2ba";
    options.algorithms = {AtAlgorithm({Event::EPOCH_END}, [](State& state) {
      if (state.timestamp.batch == 8) scale(state, -4);
    })};
    options.callbacks = {CheckpointSaver({.folder = folder / "more", .filename = "ba{batch}", .save_interval = "2ba"}),
                         at(dies_at, batch, [](const State&) { throw Killed(); })};
    Trainer trainer(std::move(options));
    trainer.fit();
  };
  const Names names = {"ba2", "ba4", "ba6", "ba8", "ba8-2"};
  for (const Event dies_at : {Event::BATCH_START, Event::BATCH_END, Event::BATCH_CHECKPOINT, Event::EPOCH_END,
                              Event::FIT_END, Event::EVAL_AFTER_ALL})
    for (const std::int64_t batch : {5, 6, 8}) {
      CAPTURE(to_string(dies_at));
      CAPTURE(batch);
      const Folder folder;
      const Warnings quiet;
      try {
        train(folder, dies_at, batch);
      } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): it was killed
      }
      train(folder, dies_at, -1);
      for (const char* name : {"ck", "more"}) CHECK(names_in(folder / name) == names);
      for (const char* name : {"ck/ba8", "more/ba8"}) CHECK(weight_of(folder / name) > 0);
      for (const char* name : {"ck/ba8-2", "more/ba8-2"}) CHECK(weight_of(folder / name) < 0);
    }
}

TEST_CASE("A name that is the same at several moments is that of the last one, unless another has the best value") {
  for (const bool has_best : {false, true})
    for (const std::string filename : {"last", "ep{epoch}"}) {
      if (has_best && filename == "last") continue;  // is refused
      CAPTURE(has_best);
      CAPTURE(filename);
      const Folder folder;
      const Warnings quiet;
      TrainerOptions options = followed(folder);
      if (!has_best) options.save_best.reset();
      options.save_interval = options.eval_interval = "2ba";
      options.save_filename = filename;
      options.callbacks = {at(Event::BATCH_CHECKPOINT, 4, [](const State& state) { state.stop.ask("a pause"); })};
      options.max_duration = "2ep";
      Trainer(std::move(options)).fit();
      const Names names = names_in(folder / "ck");
      if (has_best)
        CHECK(names.size() == 3);
      else
        CHECK(names == (filename == "last" ? Names{"last"} : Names{"ep0", "ep1"}));
    }
}

TEST_CASE("A name with a number that another run has taken is passed over, and its checkpoint stays") {
  const Folder folder;
  const Warnings quiet;
  fs::create_directories(folder / "ck");
  write(folder / "ck", 4, saving::real_files(), "ep1-ba4-2");
  Trainer trainer(followed(folder));
  trainer.fit();
  scale(trainer.state(), 2);
  CHECK(trainer.save_checkpoint() == folder / "ck/ep1-ba4-3");
  scale(trainer.state(), 2);
  CHECK(trainer.save_checkpoint() == folder / "ck/ep1-ba4-4");
  CHECK(trainer.save_checkpoint() == folder / "ck/ep1-ba4-4");
}

TEST_CASE("A checkpoint that was saved by hand at a moment of its own gets the value of its weights") {
  const Folder folder;
  const Warnings quiet;
  TrainerOptions options = followed(folder);
  options.eval_interval = "0ep";
  options.save_interval = [](Event, const State& state) { return state.timestamp.batch == 2; };
  Trainer trainer(std::move(options));
  trainer.fit();
  trainer.save_checkpoint("final");
  trainer.eval();
  CHECK(metrics_of(folder / "ck/final").contains("eval/CrossEntropy"));
  CHECK_FALSE(metrics_of(folder / "ck/ep0-ba2").contains("eval/CrossEntropy"));
}

TEST_CASE("CheckpointSaver notes at once what is evaluated when its fit has failed") {
  const Folder folder;
  const Warnings quiet;
  TrainerOptions options = followed(folder);
  options.eval_interval = "0ep";
  options.callbacks = {
      CheckpointSaver({.folder = folder / "more", .save_interval = "1ba", .best = Best{.metric = "eval/CrossEntropy"}}),
      at(Event::BATCH_START, 3, [](const State&) { throw Killed(); })};
  Trainer trainer(std::move(options));
  CHECK_THROWS(trainer.fit());
  trainer.eval();
  CHECK(metrics_of(folder / "more/ep0-ba3").contains("eval/CrossEntropy"));
}

TEST_CASE("What was measured of a checkpoint is not noted in another that gets its name") {
  const Folder folder;
  const Warnings quiet;
  TrainerOptions options = followed(folder);
  options.eval_interval = "0ep";
  Trainer trainer(std::move(options));
  trainer.begin();
  while (trainer.step()) {
  }
  std::vector<double> values;
  for (const double by : {1.0, 2.0}) {
    scale(trainer.state(), by);
    trainer.save_checkpoint("mine");
    if (by == 2) CHECK_FALSE(metrics_of(folder / "ck/mine").contains("eval/CrossEntropy"));
    trainer.eval();
    values.push_back(trainer.state().metrics.at("eval", "CrossEntropy"));
  }
  trainer.end();
  CHECK(values[0] != values[1]);
  CHECK(metrics_of(folder / "ck/mine").at("eval/CrossEntropy") == values[1]);
}

TEST_CASE("CheckpointSaver of a run that goes on gives its newest checkpoint no value of the trainer's weights") {
  for (const bool swa : {false, true}) {
    CAPTURE(swa);
    const Folder folder;
    const Warnings quiet;
    const auto options = [&](std::int64_t dies) {
      TrainerOptions options = followed(folder);
      options.max_duration = "5ep";
      options.eval_interval = "0ep";
      if (swa)
        options.algorithms = {algorithms::SWA({.swa_start = "1ep", .swa_end = "3ep", .schedule_swa_lr = false})};
      else
        options.algorithms = {AtAlgorithm({Event::EPOCH_END}, [](State& state) { scale(state, -2); })};
      options.callbacks = {
          CheckpointSaver(
              {.folder = folder / "more", .save_interval = "4ba", .best = Best{.metric = "eval/CrossEntropy"}}),
          at(Event::BATCH_START, dies, [](const State&) { throw Killed(); })};
      return options;
    };
    CHECK_THROWS(Trainer(options(12)).fit());
    {
      Trainer trainer(options(-1));
      REQUIRE(trainer.state().timestamp.batch == 12);
      trainer.begin();
      trainer.eval();
      trainer.close();
    }
    CHECK(metrics_of(folder / "ck/ep3-ba12").contains("eval/CrossEntropy"));
    CHECK_FALSE(metrics_of(folder / "more/ep2-ba12").contains("eval/CrossEntropy"));
  }
}

TEST_CASE("A complete run that is started again leaves the link to the best of what was written when it ended") {
  const Folder folder;
  const Warnings quiet;
  std::vector<std::string> links;
  for (int start = 0; start < 2; ++start) {
    TrainerOptions options = followed(folder);
    options.eval_interval = "1ba";
    options.callbacks = {CheckpointSaver(
        {.folder = folder / "more", .save_interval = "3ba", .best = Best{.metric = "eval/CrossEntropy"}})};
    Trainer(std::move(options)).fit();
    links.push_back(fs::read_symlink(folder / "more/best"));
  }
  CHECK(links == std::vector<std::string>(2, "ep1-ba4"));
}

TEST_CASE("That save_best had no effect, or could not take a value, is said once, with what to do") {
  struct Row {
    const char *save, *evaluate, *says;
  };
  const std::vector<Row> rows = {{"1ep", "1ep", ""},
                                 {"1ba", "1ep", ""},
                                 {"1ep", "4ba", ""},
                                 {"7ba", "1ep", "because none was saved there"},
                                 {"1ep", "0ep", "save_best: had no effect, because no checkpoint has a value"}};
  for (const Row& row : rows) {
    CAPTURE(row.save);
    CAPTURE(row.evaluate);
    const Folder folder;
    const Warnings warnings;
    {
      TrainerOptions options = followed(folder);
      options.max_duration = "3ep";
      options.save_interval = Time::parse(row.save);
      options.eval_interval = Time::parse(row.evaluate);
      Trainer(std::move(options)).fit();
    }
    CHECK(warnings.texts.size() == (std::string(row.says).empty() ? 0 : 1));
    for (const std::string& text : warnings.texts) CHECK(text.find(row.says) != std::string::npos);
  }
}

TEST_CASE("Weights that change after the last checkpoint of a run, at FIT_END, are told to be in none") {
  for (const Event event : {Event::EPOCH_END, Event::FIT_END}) {
    const Folder folder;
    const Warnings warnings;
    TrainerOptions options = tiny_options();
    options.save_folder = folder / "ck";
    options.algorithms = {AtAlgorithm({event}, [](State& state) { scale(state, 2); })};
    Trainer(std::move(options)).fit();
    CHECK(warnings.say("save_folder: the weights were changed at FIT_END, after ep1-ba4 was saved") ==
          (event == Event::FIT_END));
  }
}

TEST_CASE("A checkpoint by hand that has lost a file is not taken for what the program had saved before") {
  const Folder folder;
  const Warnings quiet;
  const auto trainer = [&] {
    TrainerOptions options = tiny_options();
    options.save_folder = folder / "ck";
    return Trainer(std::move(options));
  };
  {
    Trainer first = trainer();
    first.save_checkpoint("init");
    first.fit();
  }
  fs::remove(folder / "ck/init/model.safetensors");
  Trainer again = trainer();
  CHECK(fs::exists(again.save_checkpoint("init") + "/model.safetensors"));
}

}  // namespace
}  // namespace composer::test::kept_checkpoints_test
