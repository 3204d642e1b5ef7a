// Whose weights a value was measured on, when algorithms or the program change them beside the optimizer's step.
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include "composer/algorithms/ema.h"
#include "composer/algorithms/layer_freezing.h"
#include "composer/algorithms/swa.h"
#include "composer/callbacks/checkpoint_saver.h"
#include "composer/checkpoint/folder.h"
#include "composer/core/error.h"
#include "composer/core/model_access.h"
#include "composer/metrics/loss_metrics.h"
#include "tests/support/at_algorithm.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::test::measured_weights_test {
namespace {

namespace fs = std::filesystem;
using MakeAlgorithms = std::function<Algorithms()>;

void scale_weights(State& state, double factor) {
  const at::NoGradGuard no_grad;
  for (const at::Tensor& weight : parameters(as_module(*state.model))) weight.mul_(factor);
}

Algorithms none() { return {}; }
Algorithms swa() { return {algorithms::SWA()}; }
Algorithms ema() { return {algorithms::EMA({.half_life = "1ep"})}; }
Algorithms freezing() { return {algorithms::LayerFreezing({.freeze_start = 0.2})}; }
Algorithms scaling() {
  return {AtAlgorithm({Event::EPOCH_END}, [](State& state) { scale_weights(state, 0.5); })};
}

// Of two layers, so that LayerFreezing has one to freeze.
std::shared_ptr<Model> model(const Metrics& train_metrics = {}, double dropout = 0) {
  at::manual_seed(3);
  torch::nn::Sequential net(torch::nn::Linear(4, 4), torch::nn::Dropout(dropout), torch::nn::Linear(4, 3));
  return std::make_shared<models::Classifier>(
      net, models::ClassifierOptions{.num_classes = 3, .train_metrics = train_metrics});
}

// Epochs of 4 batches.
TrainerOptions options_of(const MakeAlgorithms& algorithms) {
  TrainerOptions options = tiny_options();
  options.model = model();
  options.optimizer = optim::sgd({.lr = 0.5});
  options.max_duration = "4ep";
  options.eval_dataloader = tiny_loader(7, 4);
  options.algorithms = algorithms();
  options.seed = 1;
  return options;
}

// Of a run that begins with it.
double loss_of(const fs::path& checkpoint, const MakeAlgorithms& algorithms, std::shared_ptr<Loader> data = {}) {
  TrainerOptions options = options_of(algorithms);
  options.run_name = "another";
  options.load_path = checkpoint;
  if (data) options.eval_dataloader = std::move(data);
  Trainer trainer(std::move(options));
  trainer.eval();
  return trainer.state().metrics.at("eval", "CrossEntropy");
}

std::optional<double> noted(const saving::Found& found, const std::string& metric) {
  const auto value = found.manifest.metrics.find(metric);
  return value == found.manifest.metrics.end() ? std::nullopt : std::optional(value->second);
}

// Every value of a checkpoint is that of its weights, and the best one has the best of them. Returns how many have one.
int check_values(const fs::path& folder, const std::optional<fs::path>& best, const MakeAlgorithms& algorithms) {
  int values = 0;
  double least = std::numeric_limits<double>::infinity();
  for (const saving::Found& found : saving::list_checkpoints(folder)) {
    const std::optional<double> value = noted(found, "eval/CrossEntropy");
    if (!value) continue;
    ++values;
    CAPTURE(found.path.filename().string());
    CHECK(loss_of(found.path, algorithms) == doctest::Approx(*value).epsilon(1e-6));
    least = std::min(least, *value);
  }
  CHECK(best.has_value() == (values > 0));
  if (best) CHECK(noted(saving::open_checkpoint(*best), "eval/CrossEntropy") == least);
  return values;
}

TEST_CASE("A checkpoint has a value only of its own weights, whatever algorithms do after it was taken") {
  struct Row {
    std::string name;
    MakeAlgorithms algorithms;
    std::string save, evaluate;
    int values;  // of the 4 checkpoints at the ends of epochs, and one more if the weights have changed since the last
  };
  const std::vector<Row> rows = {{"nothing", none, "4ba", "1ep", 4},
                                 {"LayerFreezing", freezing, "4ba", "1ep", 4},
                                 {"SWA", swa, "4ba", "1ep", 4},
                                 {"SWA", swa, "1ep", "1ep", 4},
                                 {"SWA", swa, "4ba", "4ba", 5},
                                 {"EMA", ema, "4ba", "1ep", 1},
                                 {"EMA", ema, "1ep", "1ep", 4},
                                 {"EMA", ema, "4ba", "4ba", 5},
                                 {"EMA", ema, "1ep", "4ba", 1},
                                 {"an own algorithm", scaling, "4ba", "1ep", 1},
                                 {"an own algorithm", scaling, "1ep", "1ep", 4}};
  for (const Row& row : rows) {
    CAPTURE(row.name);
    CAPTURE(row.save);
    CAPTURE(row.evaluate);
    const Folder folder;
    const Warnings quiet;
    TrainerOptions options = options_of(row.algorithms);
    options.save_folder = folder / "ck";
    options.save_interval = Time::parse(row.save);
    options.eval_interval = Time::parse(row.evaluate);
    options.save_best = saving::Best{.metric = "eval/CrossEntropy"};
    options.callbacks.add(callbacks::CheckpointSaver({.folder = folder / "more",
                                                      .save_interval = Time::parse(row.save),
                                                      .best = saving::Best{.metric = "eval/CrossEntropy"}}));
    std::optional<fs::path> best;
    {
      Trainer trainer(std::move(options));
      trainer.fit();
      if (const auto path = trainer.best_checkpoint()) best = *path;
    }
    CHECK(check_values(folder / "ck", best, row.algorithms) == row.values);
    const fs::path link = folder / "more/best";
    CHECK(check_values(folder / "more", fs::exists(link) ? std::optional(fs::canonical(link)) : std::nullopt,
                       row.algorithms) == row.values);
  }
}

TEST_CASE("The last checkpoint of a run has the weights that it ends with, whatever algorithms do after a save") {
  for (const MakeAlgorithms& algorithms :
       {MakeAlgorithms(none), MakeAlgorithms(swa), MakeAlgorithms(ema), MakeAlgorithms(scaling)})
    for (const char* name : {"ep{epoch}-ba{batch}", "ba{batch}"}) {
      CAPTURE(std::string(name));
      const Folder folder;
      const Warnings quiet;
      double last = 0;
      for (const bool again : {false, true}) {
        TrainerOptions options = options_of(algorithms);
        options.save_folder = folder / "ck";
        options.save_filename = name;
        options.save_interval = "2ba";
        options.callbacks.add(
            callbacks::CheckpointSaver({.folder = folder / "more", .filename = name, .save_interval = "2ba"}));
        Trainer trainer(std::move(options));
        trainer.fit();
        if (!again) last = trainer.state().metrics.at("eval", "CrossEntropy");
      }
      for (const char* of : {"ck", "more"})
        CHECK(loss_of(folder / of / "latest", algorithms) == doctest::Approx(last).epsilon(1e-6));
    }
}

TEST_CASE("That an evaluation is of weights which no checkpoint has is said once, with what to do") {
  for (const bool after : {false, true}) {
    const Folder folder;
    TrainerOptions options = options_of(ema);
    options.save_folder = folder / "ck";
    options.save_interval = after ? Time("1ep") : Time("4ba");
    options.save_best = saving::Best{.metric = "eval/CrossEntropy"};
    const Warnings warnings;
    Trainer(std::move(options)).fit();
    CHECK(warnings.texts.size() == (after ? 0 : 1));
    CHECK(warnings.say("save_best: eval/CrossEntropy after batch 4 is that of weights which no checkpoint has") !=
          after);
    CHECK(warnings.say("save_interval = \"1ep\"") != after);
  }
}

TEST_CASE("Weights that were changed after the last evaluation of a fit are evaluated at its end, and no others") {
  struct Row {
    MakeAlgorithms algorithms;
    std::string interval;
    int evaluations;
  };
  const std::vector<Row> rows = {{none, "4ba", 4}, {freezing, "4ba", 4}, {swa, "4ba", 5},
                                 {ema, "4ba", 5},  {swa, "1ep", 4},      {ema, "1ep", 4}};
  for (const Row& row : rows) {
    CAPTURE(row.interval);
    const Folder folder;
    const Warnings quiet;
    int evaluations = 0;
    TrainerOptions options = options_of(row.algorithms);
    options.eval_interval = Time::parse(row.interval);
    options.callbacks = {At([&](Event event, const State&) { evaluations += event == Event::EVAL_END ? 1 : 0; })};
    Trainer trainer(std::move(options));
    trainer.fit();
    CHECK(evaluations == row.evaluations);
    const double last = trainer.state().metrics.at("eval", "CrossEntropy");
    trainer.eval();
    CHECK(trainer.state().metrics.at("eval", "CrossEntropy") == last);
  }
}

TEST_CASE("A run that begins with the weights alone of one with averages is told that evaluations were of these") {
  for (const bool averages : {false, true}) {
    const Folder folder;
    TrainerOptions options = options_of(averages ? ema : none);
    options.save_folder = folder / "ck";
    Trainer(std::move(options)).fit();
    const Warnings warnings;
    TrainerOptions later = options_of(none);
    later.run_name = "another";
    later.load_path = folder / "ck/latest";
    later.load_weights_only = true;
    const Trainer trainer(std::move(later));
    CHECK(warnings.say("its trained weights are loaded, and not the averages of EMA") == averages);
  }
}

TEST_CASE("An evaluation of averages that a signal has interrupted gives its checkpoint a value when it is made up") {
  const Folder folder;
  for (const bool is_first : {true, false}) {
    const Warnings quiet;
    TrainerOptions options = options_of(ema);
    options.handle_signals = true;
    options.save_folder = folder / "ck";
    options.save_best = saving::Best{.metric = "eval/CrossEntropy"};
    if (is_first)
      options.callbacks = {At([](Event event, const State& state) {
        if (event == Event::EVAL_BATCH_END && state.timestamp.batch == 8) std::raise(SIGTERM);
      })};
    Trainer trainer(std::move(options));
    trainer.fit();
    if (is_first) continue;
    CHECK(check_values(folder / "ck", fs::path(trainer.best_checkpoint().value()), ema) == 4);
  }
}

TEST_CASE("By a metric of training, a checkpoint has the value of the batch that is trained from its weights") {
  const Folder folder;
  const Warnings quiet;
  const std::shared_ptr<Loader> data = tiny_loader(16, 16);
  const saving::Best best{.metric = "train/CrossEntropy"};
  {
    TrainerOptions options = options_of(none);
    options.train_dataloader = data;
    options.model = model(Metrics(metrics::CrossEntropy()));
    options.max_duration = "6ep";
    options.save_folder = folder / "ck";
    options.save_best = best;
    options.callbacks.add(callbacks::CheckpointSaver({.folder = folder / "more", .best = best}));
    Trainer(std::move(options)).fit();
  }
  for (const char* name : {"ck", "more"}) {
    int values = 0;
    double least = std::numeric_limits<double>::infinity();
    for (const saving::Found& found : saving::list_checkpoints(folder / name)) {
      const std::optional<double> value = noted(found, best.metric);
      CHECK(value.has_value() == (found.path.filename() != "ep6-ba6"));
      if (!value) continue;
      ++values;
      CHECK(loss_of(found.path, none, data) == doctest::Approx(*value).epsilon(1e-5));
      least = std::min(least, *value);
    }
    CHECK(values == 5);
    CHECK(noted(saving::open_checkpoint(fs::canonical(folder / name / "best")), best.metric) == least);
  }
}

TEST_CASE("What was measured before the program has changed the weights is not noted for the new ones") {
  const Folder folder;
  const Warnings quiet;
  TrainerOptions options = options_of(none);
  options.max_duration = std::nullopt;
  options.save_folder = folder / "ck";
  options.save_best = saving::Best{.metric = "eval/CrossEntropy"};
  Trainer trainer(std::move(options));
  trainer.fit("1ep");
  const auto same = saving::open_checkpoint(trainer.save_checkpoint("same"));
  CHECK(noted(same, "eval/CrossEntropy") == trainer.state().metrics.at("eval", "CrossEntropy"));
  scale_weights(trainer.state(), 0.5);
  const std::string other = trainer.save_checkpoint("other");
  CHECK_FALSE(noted(saving::open_checkpoint(other), "eval/CrossEntropy"));
  CHECK_FALSE(trainer.state().metrics.is_current("eval", "CrossEntropy"));
  trainer.eval();
  CHECK(check_values(folder / "ck", fs::path(trainer.best_checkpoint().value()), none) >= 2);
  scale_weights(trainer.state(), 0.5);
  trainer.fit("1ep");
  CHECK(check_values(folder / "ck", fs::path(trainer.best_checkpoint().value()), none) >= 3);
}

TEST_CASE("A program that is killed at FIT_START of the fit after a paused one trains as long as it would have") {
  std::map<bool, std::vector<at::Tensor>> weights;
  for (const bool killed : {false, true}) {
    CAPTURE(killed);
    const Folder folder;
    const Warnings quiet;
    for (const bool is_first : {true, false}) {
      int starts = 0;
      TrainerOptions options = options_of(none);
      options.model = model({}, 0.5);
      options.train_dataloader = data::in_memory(tiny_data(20), {.batch_size = 4});
      options.max_duration = std::nullopt;
      options.save_folder = folder / "ck";
      options.save_interval = "1ba";
      options.callbacks = {At([&](Event event, const State& state) {
        if (event == Event::BATCH_END && state.timestamp.batch == 3) state.stop.ask("a pause");
        if (event != Event::FIT_START) return;
        at::rand({1});  // what hooks draw here changes nothing
        if (++starts == 2 && is_first && killed) throw ConfigError("killed");
      })};
      Trainer trainer(std::move(options));
      trainer.fit("1ep");
      if (is_first && killed) {
        CHECK_THROWS(trainer.fit("4ba"));
        continue;
      }
      trainer.fit("4ba");
      CHECK(trainer.state().timestamp.batch == 7);
      weights[killed].clear();
      for (const at::Tensor& weight : parameters(as_module(*trainer.state().model)))
        weights[killed].push_back(weight.detach().clone());
      if (!killed) break;
    }
  }
  for (std::size_t i = 0; i < weights[false].size(); ++i) CHECK(weights[false][i].equal(weights[true][i]));
}

}  // namespace
}  // namespace composer::test::measured_weights_test
