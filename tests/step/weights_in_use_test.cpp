// Weights that an algorithm hands out for evaluation and export, beside the trained ones.
#include <csignal>
#include <map>
#include <memory>
#include <set>

#include <ATen/ATen.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include "composer/checkpoint/folder.h"
#include "composer/core/error.h"
#include "composer/core/run.h"
#include "composer/formats/weights.h"
#include "tests/step/host_graph.h"
#include "tests/support/at_algorithm.h"
#include "tests/support/doctest.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"
#include "tests/support/tiny.h"
#include "tests/support/tiny_ema.h"
#include "tests/support/warnings.h"

namespace composer::test::weights_in_use_test {
namespace {

std::shared_ptr<Model> model_with_buffers() {
  at::manual_seed(5);
  torch::nn::Sequential net(torch::nn::Linear(4, 8), torch::nn::BatchNorm1d(8), torch::nn::Dropout(0.5),
                            torch::nn::Linear(8, 3));
  return std::make_shared<models::Classifier>(net, models::ClassifierOptions{.num_classes = 3});
}

TrainerOptions options_with(const std::shared_ptr<TinyEma>& ema) {
  TrainerOptions options = tiny_options();
  options.model = model_with_buffers();
  options.optimizer = optim::sgd({.lr = 0.1, .momentum = 0.9});
  options.eval_dataloader = tiny_loader(10, 5);
  options.eval_interval = "1ba";
  options.max_duration = "2ep";
  options.seed = 3;
  if (ema) options.algorithms = {ema};
  return options;
}

using Values = std::vector<at::Tensor>;

// Copies of all weights and buffers, in the order of state_dict().
Values values_of(const Model& model) {
  Values values;
  for (const auto& [name, tensor] : state_dict(model)) values.push_back(tensor.detach().clone());
  return values;
}
Values values_of(const formats::NamedTensors& tensors) {
  Values values;
  for (const auto& [name, tensor] : tensors) values.push_back(tensor.detach().clone());
  return values;
}

bool equal(const Values& a, const Values& b) {
  return std::ranges::equal(a, b, [](const at::Tensor& x, const at::Tensor& y) { return x.equal(y); });
}

// In the order of state_dict(), of the file of a checkpoint or of weights.
Values values_in(const std::filesystem::path& file, const Model& model) {
  std::map<std::string, at::Tensor> by_name;
  for (auto& [name, tensor] : read_weights(file)) by_name.emplace(name, std::move(tensor));
  Values values;
  for (const auto& [name, tensor] : state_dict(model)) values.push_back(by_name.at(name));
  return values;
}

std::vector<const void*> addresses_of(const Model& model) {
  std::vector<const void*> addresses;
  for (const auto& [name, tensor] : state_dict(model)) addresses.push_back(tensor.const_data_ptr());
  return addresses;
}

// The weights after each batch of a run without averages and without evaluation.
std::vector<Values> trained_weights() {
  std::vector<Values> after;
  TrainerOptions options = options_with(nullptr);
  options.eval_dataloader = {};
  options.callbacks = {At([&](Event event, const State& state) {
    if (event == Event::FIT_START || event == Event::BATCH_END) after.push_back(values_of(*state.model));
  })};
  Trainer(std::move(options)).fit();
  return after;
}

TEST_CASE("Every event of an evaluation sees the averages, every other one the trained weights") {
  const std::vector<Values> trained = trained_weights();
  const auto ema = std::make_shared<TinyEma>();
  TrainerOptions options = options_with(ema);
  bool evaluates = false, right = true;
  std::set<Event> averaged;
  options.callbacks = {At([&](Event event, const State& state) {
    if (event == Event::EVAL_BEFORE_ALL) evaluates = true;
    const Values now = values_of(*state.model);
    const bool is_average = !ema->averages().empty() && equal(now, values_of(ema->averages()));
    const bool is_trained = equal(now, trained[static_cast<std::size_t>(state.timestamp.batch)]);
    if (evaluates) {
      right = right && is_average && !is_trained;
      averaged.insert(event);
    } else if (event == Event::BATCH_END || event == Event::BATCH_START || event == Event::FIT_END) {
      right = right && is_trained;
    }
    if (event == Event::EVAL_AFTER_ALL) evaluates = false;
  })};
  Trainer trainer(std::move(options));
  trainer.fit();
  CHECK(right);
  CHECK(averaged.size() == 8);
  CHECK(equal(values_of(*trainer.state().model), trained.back()));
  CHECK(ema->asked[WeightsUse::EXPORT] == 0);
}

TEST_CASE("eval() and predict() compute with the averages") {
  const auto ema = std::make_shared<TinyEma>();
  Trainer trainer(options_with(ema));
  trainer.fit();
  const std::shared_ptr<Model> other = model_with_buffers();
  load_weights(*other, ema->averages(), "averages");
  TrainerOptions options = options_with(nullptr);
  options.model = other;
  Trainer plain(std::move(options));
  trainer.eval();
  plain.eval();
  CHECK(trainer.state().metrics.at("eval", "CrossEntropy") == plain.state().metrics.at("eval", "CrossEntropy"));
  const auto ours = trainer.predict(tiny_loader(10, 5)), theirs = plain.predict(tiny_loader(10, 5));
  REQUIRE(ours.size() == 2);
  for (std::size_t i = 0; i < 2; ++i) CHECK(ours[i].only().equal(theirs[i].only()));
  CHECK(equal(values_of(*trainer.state().model), trained_weights().back()));
}

TEST_CASE("The weights are exchanged without a copy, and lie where they lay before") {
  const auto ema = std::make_shared<TinyEma>();
  TrainerOptions options = options_with(ema);
  std::vector<const void*> before;
  int evaluations = 0;
  bool same = true;
  options.callbacks = {At([&](Event event, const State& state) {
    const std::vector<const void*> now = addresses_of(*state.model);
    if (event == Event::FIT_START) before = now;
    if (event == Event::BATCH_START || event == Event::BATCH_END) same = same && now == before;
    if (event != Event::EVAL_BEFORE_FORWARD) return;
    ++evaluations;
    for (std::size_t i = 0; i < now.size(); ++i) same = same && now[i] == ema->averages()[i].second.const_data_ptr();
  })};
  Trainer(std::move(options)).fit();
  CHECK(same);
  CHECK(evaluations == 16);
}

TEST_CASE("Steps that a graph replays train on after evaluations of averages, to the bit") {
  const Warnings warnings;
  const GraphsOnHost graphs;
  const auto ema = std::make_shared<TinyEma>();
  TrainerOptions options = options_with(ema);
  options.cuda_graph = true;
  Trainer trainer(std::move(options));
  trainer.fit();
  CHECK(graphs.counts().captures == 1);
  CHECK(graphs.counts().replays == 5);
  CHECK(warnings.texts.empty());
  CHECK(equal(values_of(*trainer.state().model), trained_weights().back()));
}

TEST_CASE("A checkpoint saved while averages are evaluated holds the trained weights, and the run resumes from it") {
  const std::vector<Values> trained = trained_weights();
  for (const bool async : {true, false}) {
    const Folder folder;
    const auto ema = std::make_shared<TinyEma>();
    TrainerOptions options = options_with(ema);
    options.save_folder = folder.path() / "ck";
    options.save_interval = "100ep";
    options.save_async = async;
    Trainer* saving = nullptr;
    options.callbacks = {At([&](Event event, const State& state) {
      if (event == Event::EVAL_END && state.dataloader_label == "aside") saving->save_checkpoint("now");
      if (event == Event::BATCH_CHECKPOINT && state.timestamp.batch == 5)
        saving->eval({.eval_dataloader = Evaluator{.label = "aside", .dataloader = tiny_loader(10, 10)}});
    })};
    Trainer trainer(std::move(options));
    saving = &trainer;
    trainer.fit();
    const Model& model = *trainer.state().model;
    CHECK(equal(values_in(folder.path() / "ck/now/model.safetensors", model), trained[5]));

    const auto resumed_ema = std::make_shared<TinyEma>();
    options = options_with(resumed_ema);
    options.load_path = folder.path() / "ck/now";
    Trainer resumed(std::move(options));
    CHECK(resumed.state().timestamp.batch == 5);
    resumed.fit();
    CHECK(equal(values_of(*resumed.state().model), trained.back()));
    std::map<std::string, at::Tensor> averages(ema->averages().begin(), ema->averages().end());
    for (const auto& [name, average] : resumed_ema->averages()) CHECK(average.equal(averages.at(name)));
  }
}

TEST_CASE("A snapshot that outlives an evaluation stays the trained weights") {
  const auto ema = std::make_shared<TinyEma>();
  TrainerOptions options = options_with(ema);
  StateDict kept;
  options.callbacks = {At([&](Event event, const State& state) {
    if (event == Event::EVAL_START && state.timestamp.batch == 8) kept = state.run->snapshot(/*weights_only=*/false);
  })};
  auto trainer = std::make_unique<Trainer>(std::move(options));
  trainer->fit();
  const Values trained = values_of(*trainer->state().model);
  trainer.reset();
  Values snapshot;
  for (const auto& [name, value] : std::get<StateDict>(*kept.find("model")).entries())
    snapshot.push_back(std::get<at::Tensor>(value));
  CHECK(equal(snapshot, trained));
}

TEST_CASE("After an error or a signal in an evaluation the model has the trained weights") {
  const std::vector<Values> trained = trained_weights();
  struct Row {
    const char* what;
    Event at;
    bool raises;
  };
  for (const auto& [what, at, raises] : {Row{"an error at the first event", Event::EVAL_BEFORE_ALL, false},
                                         Row{"an error in the middle", Event::EVAL_BATCH_END, false},
                                         Row{"an error at the last event", Event::EVAL_AFTER_ALL, false},
                                         Row{"a signal", Event::EVAL_BATCH_START, true}}) {
    CAPTURE(std::string(what));
    TrainerOptions options = options_with(std::make_shared<TinyEma>());
    options.handle_signals = raises;
    bool armed = true;
    options.callbacks = {At([&, at = at, raises = raises](Event event, const State& state) {
      if (event != at || state.timestamp.batch != 3 || !std::exchange(armed, false)) return;
      if (!raises) throw DataError("no evaluation today");
      std::raise(SIGINT);
    })};
    Trainer trainer(std::move(options));
    if (raises)
      trainer.fit();
    else
      CHECK_THROWS_AS(trainer.fit(), RunError);
    REQUIRE_FALSE(armed);
    CHECK(equal(values_of(*trainer.state().model), trained[3]));
    trainer.state().stop.clear();
    trainer.fit();
    CHECK(trainer.state().timestamp.batch == 8);
  }
}

TEST_CASE("weights_for() that throws what is no std::exception ends the fit with an error, and the program goes on") {
  struct Throwing : Algorithm {
    EventSet events() const override { return {Event::BATCH_END}; }
    void apply(Event, State&, Logger&) override {}
    const WeightsByName* weights_for(WeightsUse) override { throw 42; }
  };
  const Warnings warnings;
  TrainerOptions options = tiny_options();
  options.eval_dataloader = tiny_loader(8, 4);
  options.algorithms = {Throwing()};
  CHECK(error_of([&] { Trainer(std::move(options)).fit(); }).find("something that is not a std::exception") !=
        std::string::npos);
  CHECK(warnings.say("weights are taken for changed: something that is not a std::exception"));
}

TEST_CASE("An evaluation in the middle of a batch leaves its gradients what they were") {
  const std::vector<Values> trained = trained_weights();
  TrainerOptions options = options_with(std::make_shared<TinyEma>());
  Trainer* evaluating = nullptr;
  options.callbacks = {At([&](Event event, const State&) {
    if (event == Event::AFTER_FORWARD) evaluating->eval();
  })};
  Trainer trainer(std::move(options));
  evaluating = &trainer;
  trainer.fit();
  CHECK(equal(values_of(*trainer.state().model), trained.back()));
}

TEST_CASE("Exported weights are the averages: files, and checkpoints of weights only") {
  const std::vector<Values> trained = trained_weights();
  const Folder folder;
  const auto ema = std::make_shared<TinyEma>();
  TrainerOptions options = options_with(ema);
  options.save_folder = folder.path() / "ck";
  options.save_weights_only = true;
  Trainer* exporting = nullptr;
  bool exported_within = false;
  options.callbacks = {At([&](Event event, const State& state) {
    if (event != Event::EVAL_END && event != Event::BATCH_END) return;
    exporting->with_weights(WeightsUse::EXPORT, [&](Model& model) {
      exported_within = exported_within || equal(values_of(model), values_of(ema->averages()));
    });
    if (event == Event::BATCH_END)
      CHECK(equal(values_of(*state.model), trained[static_cast<std::size_t>(state.timestamp.batch)]));
    else
      CHECK(equal(values_of(*state.model), values_of(ema->averages())));
  })};
  Trainer trainer(std::move(options));
  exporting = &trainer;
  trainer.fit();
  CHECK(exported_within);
  Model& model = *trainer.state().model;
  trainer.with_weights(WeightsUse::EXPORT, [&](Model& given) { save_weights(given, folder / "ema.safetensors"); });
  CHECK(equal(values_in(folder / "ema.safetensors", model), values_of(ema->averages())));
  CHECK(equal(values_in(folder.path() / "ck/ep2-ba8/model.safetensors", model), values_of(ema->averages())));
  CHECK(equal(values_of(model), trained.back()));
  CHECK_THROWS_AS(trainer.with_weights(WeightsUse::EXPORT, [](Model&) { throw DataError("no"); }), DataError);
  CHECK(equal(values_of(model), trained.back()));
}

TEST_CASE("A checkpoint that an algorithm loads in an evaluation is what training goes on from") {
  const std::vector<Values> trained = trained_weights();
  const Folder folder;
  TrainerOptions options = options_with(std::make_shared<TinyEma>());
  options.save_folder = folder.path() / "ck";
  options.save_interval = "2ba";
  Trainer(std::move(options)).fit();

  const auto ema = std::make_shared<TinyEma>();
  options = options_with(ema);
  bool armed = true, averages = false;
  options.algorithms = {ema, AtAlgorithm({Event::EVAL_START}, [&](State& state) {
                          if (state.timestamp.batch != 6 || !std::exchange(armed, false)) return;
                          state.run->load({.path = folder.path() / "ck/ep0-ba2", .weights_only = true});
                          averages = equal(values_of(*state.model), values_of(ema->averages()));
                          state.stop.ask("loaded");
                        })};
  Trainer trainer(std::move(options));
  trainer.fit();
  CHECK(averages);
  CHECK(equal(values_of(*trainer.state().model), trained[2]));
}

TEST_CASE("Weights that do not fit the model are an error, and the model keeps the trained ones") {
  struct Row {
    const char* text;
    void (*spoil)(WeightsByName&);
  };
  for (const auto& [text, spoil] :
       {Row{"TinyEma::weights_for: the model has no parameter or buffer \"more\"",
            [](WeightsByName& weights) { weights.emplace_back("more", at::ones({1})); }},
        Row{"TinyEma::weights_for: module.0.bias is Float [8] on cpu in the model, and Float [9] on cpu in what was "
            "handed out",
            [](WeightsByName& weights) { weights[1].second = at::ones({9}); }},
        Row{"and Double [8] on cpu", [](WeightsByName& weights) { weights[1].second = at::ones({8}, at::kDouble); }},
        Row{"and undefined in what", [](WeightsByName& weights) { weights[1].second.reset(); }}}) {
    const auto ema = std::make_shared<TinyEma>();
    Trainer trainer(options_with(ema));
    trainer.fit();
    const Values trained = values_of(*trainer.state().model);
    spoil(ema->averages());
    CHECK(error_of([&] { trainer.eval(); }).find(text) != std::string::npos);
    CHECK(equal(values_of(*trainer.state().model), trained));
  }
  TrainerOptions options = options_with(nullptr);
  options.algorithms = {std::make_shared<TinyEma>(), std::make_shared<TinyEma>()};
  Trainer trainer(std::move(options));
  CHECK(error_of([&] { trainer.fit(); }).find("TinyEma and TinyEma both hand out weights for evaluation; use one") !=
        std::string::npos);
}

// What the memory of weights may be like. Evaluation and training are as with memory of their own.
TEST_CASE("Weights that share memory, or lie in other strides, are exchanged as well") {
  struct Row {
    const char* what;
    void (*arrange)(Model&, TinyEma&);
  };
  for (const auto& [what, arrange] :
       {Row{"parts of one piece of memory",
            [](Model&model, TinyEma&) {
              std::vector<at::Tensor> flat;
              for (const at::Tensor& parameter : model.parameters()) flat.push_back(parameter.detach().flatten());
              at::Tensor all = at::cat(flat);
              std::int64_t at = 0;
              for (at::Tensor& parameter : model.parameters()) {
                parameter.set_data(all.narrow(0, at, parameter.numel()).view(parameter.sizes()));
                at += parameter.numel();
              }
            }},
        Row{"averages in other strides",
            [](Model&, TinyEma&ema) {
              for (auto& [name, average] : ema.averages())
                if (average.dim() == 2) average = average.t().contiguous().t();
            }},
        Row{"only some of them", [](Model&, TinyEma&ema) { ema.averages().resize(1); }}}) {
    CAPTURE(std::string(what));
    const auto ema = std::make_shared<TinyEma>();
    Trainer trainer(options_with(ema));
    trainer.fit();
    Model& model = *trainer.state().model;
    arrange(model, *ema);
    const Values trained = values_of(model), averages = values_of(ema->averages());
    const std::vector<const void*> addresses = addresses_of(model);
    Values expected = averages, seen;
    expected.insert(expected.end(), trained.begin() + static_cast<std::ptrdiff_t>(averages.size()), trained.end());
    StateDict snapshot;
    trainer.with_weights(WeightsUse::EVALUATION, [&](Model& given) {
      seen = values_of(given);
      snapshot = trainer.state().run->snapshot(/*weights_only=*/false);
    });
    CHECK(equal(seen, expected));
    CHECK(equal(values_of(model), trained));
    CHECK(addresses_of(model) == addresses);
    Values saved;
    for (const auto& [name, value] : std::get<StateDict>(*snapshot.find("model")).entries())
      saved.push_back(std::get<at::Tensor>(value));
    CHECK(equal(saved, trained));
  }
}

// One weight under two names.
class Tied final : public models::Classifier {
 public:
  Tied() : Tied(torch::nn::Linear(4, 3)) {}
  explicit Tied(const torch::nn::Linear& linear)
      : Classifier(linear, models::ClassifierOptions{.num_classes = 3}), again_(register_module("again", linear)) {}

 private:
  torch::nn::Linear again_;
};

TEST_CASE("A weight with two names is exchanged once, and exported under both") {
  const Folder folder;
  for (const bool one_name : {false, true}) {
    const auto ema = std::make_shared<TinyEma>();
    TrainerOptions options = options_with(ema);
    options.model = std::make_shared<Tied>();
    options.save_folder = folder.path() / (one_name ? "one" : "two");
    options.save_weights_only = true;
    options.save_interval = "100ep";
    Trainer trainer(std::move(options));
    trainer.fit();
    Model& model = *trainer.state().model;
    REQUIRE(ema->averages().size() == 4);
    if (one_name) ema->averages().resize(2);
    const Values trained = values_of(model);
    const Values both{ema->averages()[0].second.clone(), ema->averages()[1].second.clone(),
                      ema->averages()[0].second.clone(), ema->averages()[1].second.clone()};
    trainer.with_weights(WeightsUse::EXPORT, [&](Model& given) { CHECK(equal(values_of(given), both)); });
    CHECK(equal(values_of(model), trained));
    const std::string path = trainer.save_checkpoint("now");
    CHECK(equal(values_in(std::filesystem::path(path) / "model.safetensors", model), both));
  }
}

}  // namespace
}  // namespace composer::test::weights_in_use_test
