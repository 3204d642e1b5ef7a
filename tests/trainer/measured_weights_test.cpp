// Whose weights a value was measured on, when algorithms or the program change them beside the optimizer's step.
#include "tests/trainer/measured_weights.h"

#include <cmath>
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
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "composer/algorithms/ema.h"
#include "composer/algorithms/layer_freezing.h"
#include "composer/algorithms/swa.h"
#include "composer/callbacks/checkpoint_saver.h"
#include "composer/checkpoint/folder.h"
#include "composer/checkpoint/saver.h"
#include "composer/core/error.h"
#include "composer/core/logger.h"
#include "composer/core/model_access.h"
#include "composer/core/run.h"
#include "composer/core/state_dict.h"
#include "composer/dist/world.h"
#include "composer/metrics/loss_metrics.h"
#include "composer/step/handed_out.h"
#include "tests/support/at_algorithm.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/in_ranks.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::test::measured_weights_test {
namespace {

namespace fs = std::filesystem;
using measured_weights::check_values;
using measured_weights::ema;
using measured_weights::Exchanging;
using measured_weights::loss_of;
using measured_weights::MakeAlgorithms;
using measured_weights::model;
using measured_weights::none;
using measured_weights::noted;
using measured_weights::options_of;
using measured_weights::scale_weights;

Algorithms swa() { return {algorithms::SWA()}; }
Algorithms freezing() { return {algorithms::LayerFreezing({.freeze_start = 0.2})}; }
Algorithms scaling() {
  return {AtAlgorithm({Event::EPOCH_END}, [](State& state) { scale_weights(state, 0.5); })};
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

// Has something of that name which no evaluation uses.
class Averaging final : public Algorithm {
 public:
  EventSet events() const override { return {Event::INIT}; }
  void apply(Event, State&, Logger&) override {}
  void visit_state(StateVisitor& visit) override { visit("averages", averages_); }

 private:
  std::map<std::string, at::Tensor> averages_{{"loss", at::ones({1})}};
};

TEST_CASE("Who takes the trained weights is told of the averages that evaluations use, and of no others") {
  struct Row {
    std::string name;
    MakeAlgorithms algorithms;
    std::string by, at;
  };
  const std::vector<Row> rows = {{"nothing", none, "", ""},
                                 {"unfinished averages", swa, "", ""},
                                 {"averages of something else", [] { return Algorithms{Averaging()}; }, "", ""},
                                 {"EMA", ema, "EMA", "algorithms/EMA/averages"},
                                 {"SWA and EMA",
                                  [] {
                                    return Algorithms{algorithms::SWA(), algorithms::EMA({.half_life = "1ep"})};
                                  },
                                  "EMA", "algorithms/EMA/averages"}};
  for (const Row& row : rows) {
    CAPTURE(row.name);
    const Folder folder;
    const Warnings warnings;
    TrainerOptions options = options_of(row.algorithms);
    options.save_folder = folder / "ck";
    Trainer(std::move(options)).fit();
    const fs::path checkpoint = folder / "ck/ep3-ba12";
    const HandedOut handed_out = HandedOut::in(saving::load(saving::open_checkpoint(checkpoint)));
    CHECK(handed_out.by == row.by);
    CHECK(handed_out.at == row.at);
    TrainerOptions later = options_of(none);
    later.run_name = "another";
    later.load_path = checkpoint;
    later.load_weights_only = true;
    const Trainer trainer(std::move(later));
    CHECK(warnings.say("its trained weights are loaded, and not the averages of") == !row.by.empty());
    CHECK(warnings.say("not the averages of EMA") == !row.by.empty());
  }
}

// One weight has two names.
struct Tied final : Model {
  Tied() {
    first = register_module("first", torch::nn::Linear(4, 4));
    register_parameter("last", first->weight);
  }
  Outputs forward(const Batch& batch) override { return at::matmul(at::relu(first(batch.at("input"))), first->weight); }
  Losses loss(const Outputs& outputs, const Batch& batch) override {
    return at::cross_entropy_loss(outputs.only(), batch.at("target"));
  }
  torch::nn::Linear first{nullptr};
};

TEST_CASE("A checkpoint tells under which name the average of a weight with two names is") {
  const Folder folder;
  TrainerOptions options = options_of(ema);
  options.model = std::make_shared<Tied>();
  options.eval_dataloader = {};
  options.save_folder = folder / "ck";
  Trainer(std::move(options)).fit();
  const HandedOut handed_out = HandedOut::in(saving::load(saving::open_checkpoint(folder / "ck/latest")));
  CHECK(handed_out.tied == std::map<std::string, std::string>{{"first.weight", "last"}});
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

TEST_CASE("What an algorithm sets under the label of training is a value of the weights of that moment alone") {
  const Folder folder;
  const Warnings quiet;
  TrainerOptions options = options_of(none);
  options.eval_dataloader = {};
  options.max_duration = "30ba";
  options.save_folder = folder / "ck";
  options.save_interval = "5ba";
  options.save_best = saving::Best{.metric = "train/own", .better = Better::HIGHER};
  options.algorithms = {AtAlgorithm({Event::AFTER_LOAD, Event::BATCH_END}, [](State& state) {
    if (state.timestamp.batch % 10 == 0)
      state.metrics.set("train", "own", at::scalar_tensor(-std::abs(state.timestamp.batch - 10.)));
  })};
  options.callbacks = {
      callbacks::CheckpointSaver({.folder = folder / "more",
                                  .save_interval = "3ba",
                                  .best = saving::Best{.metric = "train/own", .better = Better::HIGHER}})};
  Trainer(std::move(options)).fit();
  for (const char* where : {"ck", "more"})
    for (const saving::Found& found : saving::list_checkpoints(folder / where)) {
      CAPTURE(found.path.string());
      CHECK(found.manifest.metrics.contains("train/own") == (found.manifest.time.batch % 10 == 0));
    }
  CHECK(fs::read_symlink(folder / "ck/best") == "ep2-ba10");
}

TEST_CASE("A look at a part of the data is no value of a checkpoint") {
  const Folder folder;
  const Warnings quiet;
  TrainerOptions options = options_of(none);
  options.save_folder = folder / "ck";
  options.save_interval = "2ba";
  options.eval_interval = "0ep";
  options.save_best = saving::Best{.metric = "eval/CrossEntropy"};
  Trainer trainer(std::move(options));
  trainer.begin();
  while (trainer.step()) {
    const std::int64_t batch = trainer.state().timestamp.batch;
    if (batch % 4 == 0) trainer.eval({.subset_num_batches = 1});
    if (batch % 8 == 0) trainer.eval();
  }
  trainer.end();
  CHECK(check_values(folder / "ck", fs::path(trainer.best_checkpoint().value()), none) == 2);
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

TEST_CASE("A checkpoint of an earlier process gets the value of its own weights, also if the program sets others") {
  const Folder folder;
  const Warnings quiet;
  const std::shared_ptr<Loader> data = tiny_loader(16, 16);
  const saving::Best best{.metric = "train/CrossEntropy"};
  for (const bool again : {false, true}) {
    TrainerOptions options = options_of(none);
    options.train_dataloader = data;
    options.model = model(Metrics(metrics::CrossEntropy()));
    options.optimizer = optim::sgd({.lr = 0.01});
    options.max_duration = Time::parse(again ? "3ep" : "2ep");
    options.save_folder = folder / "ck";
    options.save_best = best;
    options.callbacks.add(callbacks::CheckpointSaver({.folder = folder / "more", .best = best}));
    Trainer trainer(std::move(options));
    if (again) scale_weights(trainer.state(), 0);
    trainer.fit();
  }
  for (const char* name : {"ck", "more"})
    for (const saving::Found& found : saving::list_checkpoints(folder / name)) {
      CAPTURE(found.path.string());
      const std::optional<double> value = noted(found, best.metric);
      CHECK(value.has_value() == (found.path.filename() == "ep1-ba1"));
      if (value) CHECK(loss_of(found.path, none, data) == doctest::Approx(*value).epsilon(1e-5));
    }
}

TEST_CASE("What an algorithm does to the weights in an evaluation is seen: values are of the weights before") {
  for (const MakeAlgorithms& averages : {MakeAlgorithms(none), MakeAlgorithms(ema)})
    for (const Event event : {Event::EVAL_START, Event::EVAL_AFTER_ALL}) {
      CAPTURE(to_string(event));
      const Folder folder;
      const Warnings quiet;
      TrainerOptions options = options_of(averages);
      options.algorithms.add(AtAlgorithm({event}, [](State& state) { scale_weights(state, 1.5); }));
      options.save_folder = folder / "ck";
      options.save_best = saving::Best{.metric = "eval/CrossEntropy"};
      Trainer trainer(std::move(options));
      trainer.fit();
      const bool is_after = event == Event::EVAL_AFTER_ALL;
      CHECK(trainer.state().metrics.is_current("eval", "CrossEntropy") == !is_after);
      const auto best = trainer.best_checkpoint();
      CHECK(check_values(folder / "ck", best ? std::optional<fs::path>(*best) : std::nullopt, averages) ==
            (is_after ? 1 : 4));
    }
}

// Saved before each evaluation, of which the caller gets the number.
TrainerOptions saved_before_evaluations(const MakeAlgorithms& algorithms, const Folder& folder, int& evaluations) {
  TrainerOptions options = options_of(algorithms);
  options.save_folder = folder / "ck";
  options.save_interval = "4ba";
  options.save_best = saving::Best{.metric = "eval/CrossEntropy"};
  options.callbacks = {At([&](Event event, const State&) { evaluations += event == Event::EVAL_END ? 1 : 0; })};
  return options;
}

TEST_CASE("Weights that an algorithm exchanges for an evaluation and puts back are the same before and after") {
  const Folder folder;
  const MakeAlgorithms exchanging = [] { return Algorithms{Exchanging()}; };
  int evaluations = 0;
  const Warnings warnings;
  Trainer trainer(saved_before_evaluations(exchanging, folder, evaluations));
  trainer.fit();
  CHECK(evaluations == 4);
  CHECK(trainer.state().metrics.is_current("eval", "CrossEntropy"));
  CHECK(check_values(folder / "ck", fs::path(trainer.best_checkpoint().value()), exchanging) == 4);
  CHECK(warnings.texts.empty());
}

// Computes what it hands out whenever somebody asks for it.
class Computing final : public Algorithm {
 public:
  EventSet events() const override { return {Event::INIT}; }
  void apply(Event, State& state, Logger&) override { model_ = &*state.model; }
  const WeightsByName* weights_for(WeightsUse) override {
    const at::NoGradGuard no_grad;
    handed_out_.clear();
    for (const auto& parameter : model_->named_parameters())
      handed_out_.emplace_back(parameter.key(), parameter.value().detach() * 0.5);
    return &handed_out_;
  }

 private:
  Model* model_ = nullptr;
  WeightsByName handed_out_;
};

TEST_CASE("Weights that are computed each time they are asked for change with the trained ones alone") {
  const Folder folder;
  const MakeAlgorithms computing = [] { return Algorithms{Computing()}; };
  int evaluations = 0;
  const Warnings warnings;
  Trainer trainer(saved_before_evaluations(computing, folder, evaluations));
  trainer.fit();
  CHECK(evaluations == 4);
  CHECK(warnings.texts.empty());
  CHECK(check_values(folder / "ck", fs::path(trainer.best_checkpoint().value()), computing) == 4);
  scale_weights(trainer.state(), 0.5);
  CHECK_FALSE(noted(saving::open_checkpoint(trainer.save_checkpoint("other")), "eval/CrossEntropy"));
}

TEST_CASE("What is measured after a step, and before the weights change again, is not that of the later weights") {
  for (const bool asks : {false, true}) {
    CAPTURE(asks);
    const Folder folder;
    const Warnings quiet;
    TrainerOptions options = options_of(none);
    options.train_dataloader = {};
    options.eval_dataloader = {};
    options.max_duration = std::nullopt;
    options.save_folder = folder / "ck";
    options.save_best = saving::Best{.metric = "mine/score", .better = Better::HIGHER};
    Trainer trainer(std::move(options));
    trainer.begin();
    for (int step = 0; step < 2; ++step) {
      trainer.step(tiny_data(4));
      if (asks) trainer.state().run->weights_version();
      trainer.state().metrics.set("mine", "score", at::scalar_tensor(0.9));
      const std::string same = trainer.save_checkpoint(join("same", step));
      scale_weights(trainer.state(), 0.5);
      const std::string other = trainer.save_checkpoint(join("other", step));
      CHECK(noted(saving::open_checkpoint(same), "mine/score").has_value());
      CHECK_FALSE(noted(saving::open_checkpoint(other), "mine/score"));
    }
    trainer.end();
  }
}

TEST_CASE("What one algorithm measures at the end of a batch is not that of weights which the next one changes there") {
  const Folder folder;
  const Warnings quiet;
  TrainerOptions options = options_of([] {
    return Algorithms{AtAlgorithm({Event::BATCH_END},
                                  [](State& state) { state.metrics.set("mine", "score", at::scalar_tensor(1.0)); }),
                      AtAlgorithm({Event::BATCH_END}, [](State& state) { scale_weights(state, 0.5); })};
  });
  options.save_folder = folder / "ck";
  options.save_interval = "2ba";
  options.save_best = saving::Best{.metric = "mine/score", .better = Better::HIGHER};
  Trainer trainer(std::move(options));
  trainer.fit();
  for (const saving::Found& found : saving::list_checkpoints(folder / "ck")) CHECK_FALSE(noted(found, "mine/score"));
  CHECK_FALSE(trainer.best_checkpoint());
}

TEST_CASE("What was measured on the averages is that of a run which goes on with them") {
  for (const MakeAlgorithms& algorithms : {MakeAlgorithms(none), MakeAlgorithms(swa), MakeAlgorithms(ema)}) {
    const Folder folder;
    const Warnings quiet;
    double last = 0;
    for (const bool again : {false, true}) {
      CAPTURE(again);
      TrainerOptions options = options_of(algorithms);
      options.save_folder = folder / "ck";
      Trainer trainer(std::move(options));
      if (!again) trainer.fit();
      if (!again) last = trainer.state().metrics.at("eval", "CrossEntropy");
      const auto found = saving::open_checkpoint(trainer.save_checkpoint(again ? "again" : "first"));
      CHECK(noted(found, "eval/CrossEntropy") == last);
      CHECK(trainer.state().metrics.is_current("eval", "CrossEntropy"));
    }
  }
}

struct FullDisk final : LoggerDestination {
  void log_metrics(std::span<const LogEntry> metrics, std::int64_t, const State& state) override {
    const bool is_training = !metrics.empty() && std::string_view(metrics.front().key).starts_with("metrics/train");
    if (is_training && state.timestamp.batch == 2) throw Error("the disk is full");
  }
};

TEST_CASE("Metrics of training are not current when a batch has trained, also if they could not be logged") {
  const Folder folder;
  TrainerOptions options = options_of(none);
  options.model = model(Metrics(metrics::CrossEntropy()));
  options.save_folder = folder / "ck";
  options.loggers.add(std::make_shared<FullDisk>());
  const Warnings quiet;
  Trainer trainer(std::move(options));
  CHECK_THROWS(trainer.fit());
  CHECK(trainer.state().timestamp.batch == 3);
  CHECK_FALSE(trainer.state().metrics.is_current("train", "CrossEntropy"));
  CHECK_FALSE(noted(saving::open_checkpoint(trainer.save_checkpoint("mine")), "train/CrossEntropy"));
}

TEST_CASE("CheckpointSaver says that an evaluation is of weights which no checkpoint of its own has") {
  const Folder folder;
  TrainerOptions options = options_of(ema);
  options.callbacks.add(callbacks::CheckpointSaver(
      {.folder = folder / "more", .save_interval = "4ba", .best = saving::Best{.metric = "eval/CrossEntropy"}}));
  const Warnings warnings;
  Trainer trainer(std::move(options));
  trainer.fit();
  CHECK(warnings.texts.size() == 1);
  CHECK(warnings.say("CheckpointSaver: best: eval/CrossEntropy after batch 4 is that of weights which no checkpoint"));
  scale_weights(trainer.state(), 0.5);
  trainer.eval();
  CHECK(warnings.texts.size() == 1);
}

TEST_CASE("After a fit all ranks know the same metrics for current") {
  std::vector<char> current(2);
  in_ranks(2, [&](dist::World& world) {
    TrainerOptions options = options_of(none);
    at::manual_seed(3);
    options.model =
        std::make_shared<models::Classifier>(torch::nn::Sequential(torch::nn::BatchNorm1d(4), torch::nn::Linear(4, 3)),
                                             models::ClassifierOptions{.num_classes = 3, .train_metrics = Metrics()});
    options.world = std::shared_ptr<dist::World>(std::shared_ptr<void>(), &world);
    Trainer trainer(std::move(options));
    trainer.fit();
    trainer.state().run->weights_version();
    current[static_cast<std::size_t>(trainer.state().rank)] =
        trainer.state().metrics.is_current("eval", "CrossEntropy") ? 1 : 0;
  });
  CHECK(current == std::vector<char>{1, 1});
}

TEST_CASE("A complete run that is started again evaluates weights that its program sets, and only those") {
  for (const bool given_to_fit : {false, true})
    for (const bool sets : {false, true}) {
      CAPTURE(given_to_fit);
      CAPTURE(sets);
      const Folder folder;
      const Warnings quiet;
      int evaluations = 0;
      for (const bool again : {false, true}) {
        TrainerOptions options = options_of(none);
        options.save_folder = folder / "ck";
        if (given_to_fit) options.eval_dataloader = {};
        options.callbacks = {At([&](Event event, const State&) { evaluations += event == Event::EVAL_END ? 1 : 0; })};
        Trainer trainer(std::move(options));
        if (again && sets) scale_weights(trainer.state(), 3);
        evaluations = 0;
        if (given_to_fit)
          trainer.fit({.eval_dataloader = tiny_loader(7, 4)});
        else
          trainer.fit();
        CHECK(evaluations == (again ? (sets ? 1 : 0) : 4));
        CHECK(trainer.state().metrics.is_current("eval", "CrossEntropy"));
        const double last = trainer.state().metrics.at("eval", "CrossEntropy");
        trainer.eval();
        CHECK(trainer.state().metrics.at("eval", "CrossEntropy") == last);
      }
    }
}

}  // namespace
}  // namespace composer::test::measured_weights_test
