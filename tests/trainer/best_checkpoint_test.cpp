// A value belongs to the weights it was measured on: which checkpoint is the best, which are kept, and what their
// manifests say of them, whatever comes first, the checkpoint or the evaluation.
#include <algorithm>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "composer/algorithms/ema.h"
#include "composer/callbacks/checkpoint_saver.h"
#include "composer/checkpoint/folder.h"
#include "composer/core/error.h"
#include "composer/core/metric.h"
#include "composer/core/stop.h"
#include "composer/dist/world.h"
#include "composer/formats/weights.h"
#include "tests/dist/results_in_ranks.h"
#include "tests/support/at_algorithm.h"
#include "tests/support/doctest.h"
#include "tests/support/figure.h"
#include "tests/support/folder.h"
#include "tests/support/in_ranks.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::test::best_checkpoint_test {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

struct Runs {
  explicit Runs(std::map<std::int64_t, double> by_batch, Better better = Better::HIGHER)
      : figures(std::make_shared<Figures>(Figures{.by_batch = std::move(by_batch)})), declared(better) {}

  // Epochs of 4 batches, with an evaluation and a checkpoint after each; the best is kept.
  TrainerOptions options() const {
    TrainerOptions options = tiny_options();
    options.handle_signals = true;
    options.max_duration = "4ep";
    options.eval_dataloader = {
        {.label = "eval", .dataloader = tiny_loader(4, 4), .metrics = Metrics(Figure(figures, declared))}};
    options.save_folder = folder / "ck";
    options.save_best = saving::Best{.metric = "eval/Figure"};
    options.save_num_checkpoints_to_keep = 1;
    options.callbacks = {At([now = figures](Event event, const State& state) {
      if (event == Event::EVAL_START) now->batch = state.timestamp.batch;
    })};
    return options;
  }
  Names kept() const {
    Names names;
    for (const saving::Found& found : saving::list_checkpoints(folder / "ck")) names.push_back(found.path.filename());
    return names;
  }
  std::string link() const { return fs::read_symlink(folder / "ck/best"); }
  // What the manifest says; nullopt: nothing.
  std::optional<double> value_of(const std::string& name) const {
    const auto metrics = saving::open_checkpoint(folder / "ck" / name).manifest.metrics;
    const auto found = metrics.find("eval/Figure");
    return found == metrics.end() ? std::nullopt : std::optional(found->second);
  }

  Folder folder;
  std::shared_ptr<Figures> figures;
  Better declared;
};

std::string name_of(const std::optional<std::string>& path) {
  return path ? fs::path(*path).filename().string() : "none";
}

At at(Event when, std::int64_t batch, std::function<void(const State&)> act) {
  return At([=](Event event, const State& state) {
    if (event == when && state.timestamp.batch == batch) act(state);
  });
}

TEST_CASE("A checkpoint between two evaluations has no value, and the best one is not deleted for it") {
  for (const bool by_signal : {true, false}) {
    CAPTURE(by_signal);
    const Runs runs({{4, 0.1}, {8, 0.9}, {10, 0.0}, {12, 0.2}, {16, 0.3}});
    for (const bool is_first : {true, false}) {
      TrainerOptions options = runs.options();
      if (is_first)
        options.callbacks.add(at(Event::BATCH_END, 10, [by_signal](const State& state) {
          by_signal ? static_cast<void>(std::raise(SIGTERM)) : state.stop.ask("a pause");
        }));
      const Warnings quiet;
      Trainer trainer(std::move(options));
      trainer.fit();
      CHECK(name_of(trainer.best_checkpoint()) == "ep2-ba8");
      if (is_first) CHECK(runs.kept() == Names{"ep2-ba8", "ep2-ba10"});
      if (is_first && by_signal) CHECK_FALSE(runs.value_of("ep2-ba10"));
    }
    CHECK(runs.kept() == Names{"ep2-ba8", "ep4-ba16"});
    CHECK(runs.link() == "ep2-ba8");
  }
}

TEST_CASE("With checkpoints more often than evaluations, those that were evaluated count") {
  const Runs runs({{4, 0.9}, {8, 0.2}, {12, 0.3}, {16, 0.1}});
  TrainerOptions options = runs.options();
  options.save_interval = "1ba";
  Trainer(std::move(options)).fit();
  CHECK(runs.kept() == Names{"ep0-ba4", "ep3-ba16"});
  CHECK(runs.value_of("ep0-ba4") == 0.9);
}

TEST_CASE("A checkpoint that is written before the evaluation of its batch gets the value of that, and no other") {
  const Runs runs({{4, 0.1}, {8, 0.9}, {12, 0.3}, {16, 0.2}});
  TrainerOptions options = runs.options();
  options.save_interval = "4ba";  // at BATCH_CHECKPOINT; the evaluation comes at EPOCH_END
  Trainer trainer(std::move(options));
  trainer.fit();
  CHECK(runs.kept() == Names{"ep1-ba8", "ep3-ba16"});
  CHECK(runs.value_of("ep1-ba8") == 0.9);
  CHECK(runs.value_of("ep3-ba16") == 0.2);
  CHECK(name_of(trainer.best_checkpoint()) == "ep1-ba8");
}

TEST_CASE("restore_best puts the weights of the best checkpoint into the model, and nothing else, on all ranks") {
  for (const int ranks : {1, 2}) {
    CAPTURE(ranks);
    const Folder folder;
    const auto weights = dist::test::results_in_ranks(ranks, [&](const std::shared_ptr<dist::World>& world) {
      TrainerOptions options = tiny_options();
      options.world = world;
      options.optimizer = optim::sgd({.lr = 0.1});
      options.max_duration = "3ep";
      options.eval_dataloader = tiny_loader(8, 4);
      options.save_folder = folder / "ck";
      options.save_num_checkpoints_to_keep = 1;
      options.save_best = saving::Best{.metric = "eval/CrossEntropy", .better = Better::HIGHER};  // the first
      Trainer trainer(std::move(options));
      trainer.fit();
      const Timestamp timestamp = trainer.state().timestamp;
      const at::Tensor last = trainer.state().model->parameters()[0].detach().clone();
      CHECK(name_of(trainer.restore_best()) == "ep1-ba4");
      CHECK(trainer.state().timestamp == timestamp);
      const at::Tensor now = trainer.state().model->parameters()[0].detach().clone();
      CHECK_FALSE(now.equal(last));
      return now;
    });
    const auto saved = read_weights(folder / "ck/ep1-ba4/model.safetensors");
    for (const at::Tensor& one : weights) CHECK(one.equal(saved.front().second));
  }
}

TEST_CASE("restore_best leaves resumed_from() and says nothing of seeds in a run that has begun from another one") {
  const Runs first({{4, 0.1}, {8, 0.1}, {12, 0.1}, {16, 0.1}});
  TrainerOptions options = first.options();
  options.seed = 1;
  Trainer(std::move(options)).fit();
  const Runs runs({{20, 0.9}, {24, 0.2}, {28, 0.1}, {32, 0.1}});
  options = runs.options();
  options.seed = 2;
  options.max_duration = "8ep";
  options.load_path = first.folder / "ck/latest";
  const Warnings begins;
  Trainer trainer(std::move(options));
  CHECK(begins.say("load_path: the run goes on with the seed of"));
  trainer.fit();
  const std::string resumed_from = trainer.resumed_from();
  CHECK(resumed_from.find(std::string(first.folder / "ck")) == 0);
  const Warnings warnings;
  CHECK(name_of(trainer.restore_best()) == "ep5-ba20");
  CHECK(warnings.texts.empty());
  CHECK(trainer.resumed_from() == resumed_from);
}

TEST_CASE("restore_best says what is missing, and refuses weights that were not those evaluated") {
  Trainer none(tiny_options());
  CHECK_THROWS_WITH_AS(none.restore_best(), doctest::Contains("there is no best checkpoint"), ConfigError);
  const Runs runs({{4, 0.1}, {8, 0.9}, {12, 0.3}, {16, 0.2}});
  TrainerOptions options = runs.options();
  options.algorithms = {algorithms::EMA({.half_life = "2ba"})};
  const Warnings quiet;
  Trainer averaged(std::move(options));
  averaged.fit();
  CHECK_THROWS_WITH_AS(averaged.restore_best(), doctest::Contains("EMA evaluates weights of its own"), ConfigError);
}

TEST_CASE("The last evaluation of a fit belongs to its last checkpoint, also when the run is made longer") {
  const Runs runs({{4, 0.1}, {6, 0.8}, {8, 0.2}, {9, 0.3}});
  for (const Time until : {Time("6ba"), Time("9ba")}) {
    const Warnings quiet;
    TrainerOptions options = runs.options();
    options.max_duration = until;
    Trainer trainer(std::move(options));
    trainer.fit();
    CHECK(name_of(trainer.best_checkpoint()) == "ep1-ba6");
    CHECK(runs.value_of("ep1-ba6") == 0.8);
    CHECK(runs.link() == "ep1-ba6");
  }
  CHECK(runs.kept() == Names{"ep1-ba6", "ep2-ba9"});
}

TEST_CASE("An evaluation that a signal has interrupted gives its checkpoint a value when it is made up") {
  const Runs runs({{4, 0.1}, {8, 0.9}, {12, 0.2}, {16, 0.3}});
  for (const bool is_first : {true, false}) {
    const Warnings quiet;
    TrainerOptions options = runs.options();
    if (is_first) options.callbacks.add(at(Event::EVAL_BATCH_END, 8, [](const State&) { std::raise(SIGTERM); }));
    Trainer trainer(std::move(options));
    trainer.fit();
    CHECK(name_of(trainer.best_checkpoint()) == (is_first ? "ep1-ba4" : "ep2-ba8"));
  }
  CHECK(runs.kept() == Names{"ep2-ba8", "ep4-ba16"});
  CHECK(runs.value_of("ep2-ba8") == 0.9);
}

TEST_CASE("CheckpointSaver keeps its best by values of their weights, over resumes") {
  const Runs runs({{4, 0.1}, {6, 0.9}, {8, 0.2}, {9, 0.3}});
  for (const Time until : {Time("6ba"), Time("9ba")}) {
    const Warnings quiet;
    TrainerOptions options = runs.options();
    options.save_best.reset();
    options.save_folder = runs.folder / "all";
    options.save_num_checkpoints_to_keep = -1;
    options.max_duration = until;
    options.callbacks.add(callbacks::CheckpointSaver({.folder = runs.folder / "ck",
                                                      .save_interval = "2ba",
                                                      .num_checkpoints_to_keep = 1,
                                                      .best = saving::Best{.metric = "eval/Figure"}}));
    Trainer(std::move(options)).fit();
  }
  CHECK(runs.kept() == Names{"ep1-ba6", "ep2-ba9"});
  CHECK(runs.link() == "ep1-ba6");
}

TEST_CASE("What an algorithm sets belongs to the weights that it has seen") {
  const Runs runs({{4, 0.1}, {8, 0.1}, {12, 0.1}, {16, 0.1}});
  TrainerOptions options = runs.options();
  options.save_interval = "1ba";
  options.save_best = saving::Best{.metric = "own/score", .better = Better::LOWER};
  options.algorithms = {AtAlgorithm({Event::BATCH_END}, [](State& state) {
    if (state.timestamp.batch % 3 == 0)
      state.metrics.set("own", "score", at::scalar_tensor(state.timestamp.batch == 6 ? 0.0 : 1.0));
  })};
  const Warnings quiet;
  Trainer trainer(std::move(options));
  trainer.fit();
  CHECK(runs.kept() == Names{"ep1-ba6", "ep3-ba16"});
  CHECK(saving::open_checkpoint(runs.folder / "ck/ep1-ba6").manifest.metrics.contains("own/score"));
  CHECK_FALSE(saving::open_checkpoint(runs.folder / "ck/ep3-ba16").manifest.metrics.contains("own/score"));
}

TEST_CASE("Which values are better is what the metric declares, unless the option says otherwise, with a warning") {
  struct Row {
    Better declared;
    std::optional<Better> given;
    std::string best;
    bool warns;
  };
  const std::vector<Row> rows = {{Better::HIGHER, {}, "ep2-ba8", false},
                                 {Better::LOWER, {}, "ep1-ba4", false},
                                 {Better::LOWER, Better::LOWER, "ep1-ba4", false},
                                 {Better::LOWER, Better::HIGHER, "ep2-ba8", true}};
  for (const Row& row : rows) {
    const Runs runs({{4, 0.1}, {8, 0.9}, {12, 0.3}, {16, 0.2}}, row.declared);
    TrainerOptions options = runs.options();
    options.save_best->better = row.given;
    const Warnings warnings;
    Trainer trainer(std::move(options));
    trainer.fit();
    CHECK(name_of(trainer.best_checkpoint()) == row.best);
    CHECK(runs.kept() == Names{row.best, "ep4-ba16"});
    CHECK(warnings.say("save_best: better is HIGHER, and the metric \"eval/Figure\" says LOWER") == row.warns);
    CHECK(warnings.texts.size() == (row.warns ? 1 : 0));
  }
}

TEST_CASE("A direction that nobody declares is guessed by the name, and that is said once") {
  const Runs runs({{4, 0.1}, {8, 0.1}, {12, 0.1}, {16, 0.1}});
  TrainerOptions options = runs.options();
  options.save_best = saving::Best{.metric = "own/final_loss"};
  options.algorithms = {AtAlgorithm({Event::EPOCH_END}, [](State& state) {
    state.metrics.set("own", "final_loss", at::scalar_tensor(state.timestamp.epoch == 2 ? 0.0 : 1.0));
  })};
  const Warnings warnings;
  Trainer trainer(std::move(options));
  trainer.fit();
  CHECK(name_of(trainer.best_checkpoint()) == "ep2-ba8");
  CHECK(std::ranges::count_if(warnings.texts, [](const std::string& text) {
          return text.find("so LOWER is taken because of its name") != std::string::npos;
        }) == 1);
}

TEST_CASE("A direction that was given with a value holds over a resume, and the best checkpoint is not deleted") {
  const Runs runs({});
  const std::vector<double> values = {0, 3, 1, 4, 5, 6, 7, 8, 9};
  const auto train = [&](const char* until, Better better) {
    TrainerOptions options = runs.options();
    options.eval_dataloader = Evaluators{};
    options.max_duration = Time::parse(until);
    options.save_interval = "1ba";
    options.save_best = saving::Best{.metric = "own/quality"};
    options.algorithms = {AtAlgorithm({Event::BATCH_END}, [&values, better](State& state) {
      const double value = values[static_cast<std::size_t>(state.timestamp.batch)];
      state.metrics.set("own", "quality", at::scalar_tensor(better == Better::LOWER ? value : -value), better);
    })};
    const Warnings warnings;
    Trainer trainer(std::move(options));
    CHECK(trainer.state().metrics.better("own", "quality") ==
          (trainer.state().resumes ? std::optional(better) : std::nullopt));
    trainer.fit();
    CHECK_FALSE(warnings.say("nobody declares"));
    CHECK(name_of(trainer.best_checkpoint()) == "ep0-ba2");
    CHECK(runs.link() == "ep0-ba2");
  };
  for (const Better better : {Better::LOWER, Better::HIGHER}) {
    fs::remove_all(runs.folder / "ck");
    for (const char* until : {"1ep", "2ep"}) train(until, better);
    CHECK(runs.kept().front() == "ep0-ba2");
    CHECK(runs.kept().size() == 2);
  }
}

TEST_CASE("A direction that is declared corrects one that was guessed, and the options' own is not asked about") {
  const Runs runs({});
  for (const std::optional<Better> given : {std::optional<Better>(), std::optional(Better::HIGHER)}) {
    fs::remove_all(runs.folder / "ck");
    TrainerOptions options = runs.options();
    options.eval_dataloader = Evaluators{};
    options.save_best = saving::Best{.metric = "own/figure", .better = given};
    options.save_num_checkpoints_to_keep = -1;
    options.algorithms = {AtAlgorithm({Event::EPOCH_END}, [](State& state) {
      const auto epoch = state.timestamp.epoch;
      state.metrics.set("own", "figure", at::scalar_tensor(static_cast<double>(epoch)),
                        epoch < 3 ? std::nullopt : std::optional(Better::LOWER));
    })};
    const Warnings warnings;
    Trainer trainer(std::move(options));
    trainer.fit();
    CHECK(warnings.say("nobody declares") == !given);
    CHECK(name_of(trainer.best_checkpoint()) == (given ? "ep4-ba16" : "ep1-ba4"));
  }
}

// As another process sees them.
std::string best_of_another(const Runs& runs) {
  TrainerOptions options = runs.options();
  options.max_duration = std::nullopt;
  const Warnings quiet;
  const Trainer other(std::move(options));
  return name_of(other.best_checkpoint());
}

TEST_CASE(
    "What is evaluated between two fits is noted at once, and the same checkpoint is the best in the next process") {
  const Runs runs({{4, 0.2}, {8, 0.9}, {12, 0.3}});
  TrainerOptions options = runs.options();
  options.max_duration = std::nullopt;
  options.eval_interval = "0ep";
  const Warnings quiet;
  Trainer trainer(std::move(options));
  for (const char* best : {"ep1-ba4", "ep2-ba8", "ep2-ba8"}) {
    trainer.fit("1ep");
    trainer.eval();
    CHECK(name_of(trainer.best_checkpoint()) == best);
    CHECK(runs.link() == best);
    CHECK(best_of_another(runs) == best);
  }
  CHECK(runs.value_of("ep3-ba12") == 0.3);
}

TEST_CASE("What was evaluated in a fit that is dropped without an end is noted when the trainer is closed") {
  const Runs runs({{4, 0.2}, {8, 0.9}});
  {
    TrainerOptions options = runs.options();
    options.save_interval = "4ba";  // before the evaluation
    options.save_num_checkpoints_to_keep = -1;
    const Warnings quiet;
    Trainer trainer(std::move(options));
    trainer.begin();
    while (trainer.state().timestamp.epoch < 2) trainer.step();
  }
  CHECK(runs.value_of("ep1-ba8") == 0.9);
  CHECK(runs.link() == "ep1-ba8");
}

TEST_CASE("CheckpointSaver notes at once what is evaluated when its fit has ended") {
  const Runs runs({{4, 0.9}});
  TrainerOptions options = runs.options();
  options.save_best.reset();
  options.save_folder.clear();
  options.save_num_checkpoints_to_keep = -1;
  options.max_duration = "1ep";
  options.eval_interval = "0ep";
  options.callbacks.add(callbacks::CheckpointSaver(
      {.folder = runs.folder / "ck", .save_interval = "1ep", .best = saving::Best{.metric = "eval/Figure"}}));
  const Warnings quiet;
  Trainer trainer(std::move(options));
  trainer.fit();
  CHECK_FALSE(runs.value_of("ep1-ba4"));
  trainer.eval();
  CHECK(runs.value_of("ep1-ba4") == 0.9);
  CHECK(runs.link() == "ep1-ba4");
}

TEST_CASE("In a loop of one's own, what is set after a step belongs to the checkpoint of that step") {
  const Runs runs({});
  TrainerOptions options = runs.options();
  options.eval_dataloader = Evaluators{};
  options.train_dataloader = {};
  options.max_duration = std::nullopt;
  options.save_interval = "1ba";
  options.save_best = saving::Best{.metric = "own/quality"};
  options.callbacks.add(callbacks::CheckpointSaver({.folder = runs.folder / "more",
                                                    .save_interval = "1ba",
                                                    .num_checkpoints_to_keep = 1,
                                                    .best = saving::Best{.metric = "own/quality"}}));
  const Warnings quiet;
  Trainer trainer(std::move(options));
  trainer.begin({.duration = "4ba"});
  for (const double value : {0.2, 0.9, 0.1, 0.3}) {
    trainer.step(tiny_data(4));
    trainer.state().metrics.set("own", "quality", at::scalar_tensor(value), Better::HIGHER);
  }
  trainer.end();
  CHECK(name_of(trainer.best_checkpoint()) == "ep0-ba2");
  CHECK(runs.kept() == Names{"ep0-ba2", "ep0-ba4"});
  CHECK(runs.link() == "ep0-ba2");
  trainer.close();
  CHECK(fs::read_symlink(runs.folder / "more/best") == "ep0-ba2");
  CHECK(fs::exists(runs.folder / "more/ep0-ba2"));
}

TEST_CASE("The link to the best of an earlier run of the name goes with the first checkpoint; that of others stays") {
  for (const bool same_name : {true, false}) {
    const Runs runs({{4, 0.1}, {8, 0.9}, {12, 0.3}, {13, 0.3}, {16, 0.2}});
    const Warnings quiet;
    Trainer(runs.options()).fit();
    REQUIRE(runs.link() == "ep2-ba8");
    TrainerOptions options = runs.options();
    if (!same_name) options.run_name = "another";
    options.save_filename = "{run_name}-ba{batch}";
    options.autoresume = false;
    options.save_overwrite = true;
    options.eval_interval = "4ep";
    Trainer trainer(std::move(options));
    trainer.begin();
    while (trainer.state().timestamp.epoch < 3) trainer.step();
    CHECK(fs::is_symlink(runs.folder / "ck/best") == !same_name);
    trainer.step();
    trainer.end();
  }
}

TEST_CASE("The link to the best is there after each fit, also if a checkpoint has the name of an earlier one") {
  const Runs runs({{4, 0.1}});
  TrainerOptions options = runs.options();
  options.save_interval = "4ba";
  options.max_duration = std::nullopt;
  Trainer trainer(std::move(options));
  for (const char* name : {"ep0-ba4", "ep0-ba4-2", "ep0-ba4-3"}) {
    trainer.fit({.duration = "1ep", .reset_time = true});
    CHECK(name_of(trainer.best_checkpoint()) == name);
    CHECK(fs::exists(runs.folder / "ck/best/manifest.json"));
  }
}

TEST_CASE("save_best without a save_folder is told to have no effect") {
  const Runs runs({{4, 0.1}});
  const Warnings warnings;
  TrainerOptions options = runs.options();
  options.save_folder = "";
  const Trainer trainer(std::move(options));
  CHECK(warnings.say("save_best has no effect without a save_folder"));
}

TEST_CASE("A name that every checkpoint has leaves no best one, and is refused") {
  const Runs runs({{4, 0.1}});
  for (const char* name : {"last", "{run_name}-rank{rank}"}) {
    TrainerOptions options = runs.options();
    options.save_filename = name;
    CHECK_THROWS_WITH_AS(Trainer(std::move(options)), doctest::Contains("save_filename: "), ConfigError);
    CHECK_THROWS_WITH_AS(callbacks::CheckpointSaver({.filename = name, .best = saving::Best{.metric = "eval/Figure"}}),
                         doctest::Contains("CheckpointSaver: filename: "), ConfigError);
  }
}

TEST_CASE("Before the first value nothing is the best; the link is moved before what it led to is deleted") {
  const Runs runs({{4, 0.1}, {8, 0.2}, {12, 0.3}, {16, 0.4}});
  TrainerOptions options = runs.options();
  options.save_interval = "2ba";
  Names best, linked;
  Trainer* trainer = nullptr;
  options.callbacks.add(At([&](Event event, const State& state) {
    if (event != Event::BATCH_START || state.timestamp.batch % 4 != 3) return;
    best.push_back(name_of(trainer->best_checkpoint()));
    linked.push_back(fs::exists(runs.folder / "ck/best") ? runs.link() : "none");
    if (fs::is_symlink(runs.folder / "ck/best")) CHECK(fs::exists(runs.folder / "ck/best/manifest.json"));
  }));
  options.save_async = false;
  Trainer made(std::move(options));
  trainer = &made;
  made.fit();
  CHECK(best == Names{"none", "ep0-ba4", "ep1-ba8", "ep2-ba12"});
  CHECK(linked.front() == "none");
  CHECK(runs.link() == "ep3-ba16");
  CHECK(runs.kept() == Names{"ep2-ba12", "ep3-ba16"});  // one is deleted when the next is written
}

TEST_CASE("All checkpoints may be kept, and the best one is known; without links there is none to it") {
  const Runs runs({{4, 0.1}, {8, 0.9}, {12, 0.3}, {16, 0.2}});
  TrainerOptions options = runs.options();
  options.save_num_checkpoints_to_keep = -1;
  options.save_latest_filename = "";
  Trainer trainer(std::move(options));
  trainer.fit();
  CHECK(runs.kept().size() == 4);
  CHECK(name_of(trainer.best_checkpoint()) == "ep2-ba8");
  CHECK_FALSE(fs::exists(runs.folder / "ck/best"));
}

TEST_CASE("What has the name of the link to the best is refused when the fit begins, and so is that name") {
  const Runs runs({{4, 0.1}, {8, 0.9}, {12, 0.3}, {16, 0.2}});
  fs::create_directories(runs.folder / "ck/best");
  Trainer refused(runs.options());
  CHECK_THROWS_WITH_AS(refused.fit(), doctest::Contains("is not a link"), CheckpointError);
  fs::remove(runs.folder / "ck/best");
  Trainer trainer(runs.options());
  CHECK_THROWS_WITH(
      trainer.save_checkpoint("best"),
      doctest::Contains(
          "save_checkpoint: the name best collides with the link of save_best, best; choose another name"));
  CHECK_THROWS_WITH(
      trainer.save_checkpoint("latest"),
      doctest::Contains("save_checkpoint: the name latest collides with the link of save_latest_filename"));
  TrainerOptions options = runs.options();
  options.save_latest_filename = "best";
  CHECK_THROWS_WITH_AS(Trainer(std::move(options)), doctest::Contains("save_latest_filename"), ConfigError);
}

TEST_CASE("Every rank knows the checkpoints and the best one when a fit has ended") {
  const Runs runs({{4, 0.1}, {8, 0.9}, {12, 0.3}, {16, 0.2}});
  std::vector<Names> saved(2);
  Names best(2);
  in_ranks(2, [&](dist::World& world) {
    TrainerOptions options = runs.options();
    options.handle_signals = false;
    options.world = std::shared_ptr<dist::World>(std::shared_ptr<void>(), &world);
    options.callbacks = {};
    options.eval_dataloader = tiny_loader(8, 4);
    options.save_best = saving::Best{.metric = "eval/CrossEntropy"};
    Trainer trainer(std::move(options));
    trainer.fit();
    const auto rank = static_cast<std::size_t>(trainer.state().rank);
    saved[rank] = trainer.saved_checkpoints();
    best[rank] = name_of(trainer.best_checkpoint());
  });
  CHECK_FALSE(saved[0].empty());
  CHECK(saved[1] == saved[0]);
  CHECK(best[0] != "none");
  CHECK(best[1] == best[0]);
}

TEST_CASE("What a stopper has decided in an evaluation that was made up is in the checkpoint: the next start is told") {
  const Runs runs({{4, 0.9}, {8, 0.1}, {12, 0.2}, {16, 0.3}});
  std::int64_t evaluations = 0;
  for (const int start : {0, 1, 2}) {
    const Warnings warnings;
    TrainerOptions options = runs.options();
    if (start == 0) options.callbacks.add(at(Event::EVAL_BATCH_END, 8, [](const State&) { std::raise(SIGTERM); }));
    options.callbacks.add(at(Event::EVAL_END, 8, [&evaluations, start](const State& state) {
      if (start == 0) return;
      ++evaluations;
      state.stop.ask("no better", Stop::FINISHED);
    }));
    Trainer trainer(std::move(options));
    trainer.fit();
    CHECK(trainer.state().timestamp.batch == 8);
    CHECK(warnings.say("this run is complete") == (start == 2));
  }
  CHECK(evaluations == 1);
  CHECK(runs.value_of("ep2-ba8") == 0.1);
}

}  // namespace
}  // namespace composer::test::best_checkpoint_test
