// Which weights an evaluation is of: what is exchanged, looked at, or written by its passes.
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>

#include "composer/callbacks/early_stopper.h"
#include "composer/callbacks/threshold_stopper.h"
#include "composer/checkpoint/folder.h"
#include "composer/core/model_access.h"
#include "composer/core/run.h"
#include "composer/metrics/loss_metrics.h"
#include "tests/support/at_algorithm.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"
#include "tests/trainer/measured_weights.h"

namespace composer::test::evaluated_weights_test {
namespace {

namespace fs = std::filesystem;
using measured_weights::check_values;
using measured_weights::ema;
using measured_weights::Exchanging;
using measured_weights::MakeAlgorithms;
using measured_weights::none;
using measured_weights::options_of;
using measured_weights::scale_weights;

TEST_CASE("What an algorithm does to the weights is seen, whatever another one exchanges meanwhile") {
  for (const Event event : {Event::EVAL_START, Event::EVAL_BATCH_END, Event::EVAL_END, Event::EVAL_AFTER_ALL})
    for (const bool first : {true, false}) {
      CAPTURE(to_string(event));
      CAPTURE(first);
      const Folder folder;
      const Warnings quiet;
      TrainerOptions options = options_of(none);
      if (first) options.algorithms.add(Exchanging());
      options.algorithms.add(AtAlgorithm({event}, [](State& state) { scale_weights(state, 1.5); }));
      if (!first) options.algorithms.add(Exchanging());
      options.save_folder = folder / "ck";
      options.save_interval = "4ba";
      options.save_best = saving::Best{.metric = "eval/CrossEntropy"};
      Trainer trainer(std::move(options));
      trainer.fit();
      const auto best = trainer.best_checkpoint();
      const int values = check_values(folder / "ck", best ? std::optional<fs::path>(*best) : std::nullopt,
                                      [] { return Algorithms{Exchanging()}; });
      if (event == Event::EVAL_BATCH_END || event == Event::EVAL_END) CHECK(values == 0);
    }
}

TEST_CASE("A value is of weights only if they were the same for all batches of the evaluation") {
  const Folder folder;
  const Warnings quiet;
  TrainerOptions options = options_of(none);
  options.eval_dataloader = tiny_loader(8, 4);
  options.max_duration = "1ep";
  options.save_folder = folder / "ck";
  options.save_best = saving::Best{.metric = "eval/CrossEntropy"};
  options.callbacks = {At([](Event event, const State& state) {
    if (event == Event::EVAL_BATCH_END) scale_weights(const_cast<State&>(state), 1.5);
  })};
  Trainer trainer(std::move(options));
  trainer.fit();
  CHECK_FALSE(trainer.state().metrics.is_current("eval", "CrossEntropy"));
  CHECK_FALSE(trainer.best_checkpoint());
}

TEST_CASE("What eval() is given chooses no checkpoint if it is a part of the data, or other data of the same label") {
  struct Row {
    std::string name;
    std::function<EvalOptions()> eval;
    std::string label;
    bool chooses;
  };
  const auto data = [] { return tiny_loader(16, 2); };
  const auto named = [=](const std::string& label) { return Evaluator{.label = label, .dataloader = data()}; };
  const std::vector<Row> rows = {
      {"all", [] { return EvalOptions{}; }, "eval", true},
      {"as many batches as there are", [] { return EvalOptions{.subset_num_batches = 8}; }, "eval", true},
      {"a part", [] { return EvalOptions{.subset_num_batches = 7}; }, "eval", false},
      {"a part of a loader", [=] { return EvalOptions{.eval_dataloader = data(), .subset_num_batches = 1}; }, "eval",
       false},
      {"another loader", [=] { return EvalOptions{.eval_dataloader = tiny_loader(2, 2)}; }, "eval", false},
      {"another label", [=] { return EvalOptions{.eval_dataloader = named("other")}; }, "other", true},
      {"a part of another label",
       [=] { return EvalOptions{.eval_dataloader = named("other"), .subset_num_batches = 7}; }, "other", false},
      {"all of another label", [=] { return EvalOptions{.eval_dataloader = named("other"), .subset_num_batches = 8}; },
       "other", true}};
  for (const Row& row : rows) {
    CAPTURE(row.name);
    const Folder folder;
    const Warnings quiet;
    TrainerOptions options = options_of(none);
    options.eval_dataloader = data();
    options.eval_interval = "0ep";
    options.save_folder = folder / "ck";
    options.save_best = saving::Best{.metric = row.label + "/CrossEntropy"};
    options.algorithms = {AtAlgorithm({Event::INIT}, [](State&) {})};  // the label may come from anywhere
    Trainer trainer(std::move(options));
    trainer.fit();
    trainer.eval(row.eval());
    CHECK(trainer.best_checkpoint().has_value() == row.chooses);
    CHECK(trainer.state().metrics.is_current(row.label, "CrossEntropy") == row.chooses);
  }
}

TEST_CASE("A quick look in a loop of one's own ends no run, whoever judges it") {
  for (const bool looks : {false, true}) {
    const Warnings quiet;
    TrainerOptions options = options_of(none);
    options.eval_dataloader = tiny_loader(40, 1);
    options.max_duration = "6ep";
    options.callbacks = {
        callbacks::ThresholdStopper({.monitor = "MulticlassAccuracy", .dataloader_label = "eval", .threshold = 0.99}),
        callbacks::EarlyStopper({.monitor = "MulticlassAccuracy", .dataloader_label = "eval", .patience = "100ep"})};
    Trainer trainer(std::move(options));
    trainer.begin();
    bool was_right = false;
    while (trainer.step())
      if (looks && trainer.state().timestamp.batch % 4 == 3) {
        trainer.eval({.subset_num_batches = 1});
        was_right = was_right || trainer.state().metrics.at("eval", "MulticlassAccuracy") == 1;
      }
    CHECK(was_right == looks);
    trainer.end();
    CHECK(trainer.state().timestamp.epoch == 6);
  }
}

// Counts its passes in a buffer. `more`: also what it measures, and writes its weights when it evaluates, as an
// embedding with max_norm does.
struct Counting final : Model {
  explicit Counting(bool counts_more = false) : more(counts_more) {
    linear = register_module("linear", torch::nn::Linear(4, 3));
    passes = register_buffer("passes", at::zeros({1}));
  }
  Outputs forward(const Batch& batch) override {
    const at::NoGradGuard no_grad;
    passes.add_(1);
    if (more && !is_training()) linear->weight.mul_(1);
    const at::AutoGradMode grad(is_training());
    return linear(batch.at("input"));
  }
  Losses loss(const Outputs& outputs, const Batch& batch) override {
    return at::cross_entropy_loss(outputs.only(), batch.at("target"));
  }
  Metrics get_metrics(bool is_train) const override { return is_train ? Metrics() : Metrics(metrics::CrossEntropy()); }
  void update_metric(const Batch& batch, const Outputs& outputs, Metric& metric) override {
    if (more) passes.add_(1);
    Model::update_metric(batch, outputs, metric);
  }
  bool more;
  torch::nn::Linear linear{nullptr};
  at::Tensor passes;
};

TrainerOptions counting_options(const MakeAlgorithms& algorithms, const Folder& folder, int& evaluations,
                                bool more = false) {
  TrainerOptions options = options_of(algorithms);
  options.model = std::make_shared<Counting>(more);
  options.eval_dataloader = Evaluators{Evaluator{.label = "a", .dataloader = tiny_loader(8, 4)},
                                       Evaluator{.label = "b", .dataloader = tiny_loader(8, 4)}};
  options.save_folder = folder / "ck";
  options.save_best = saving::Best{.metric = "a/CrossEntropy"};
  options.callbacks = {At([&](Event event, const State&) { evaluations += event == Event::EVAL_END ? 1 : 0; })};
  return options;
}

TEST_CASE("What a forward pass counts in a buffer while it evaluates or predicts is no change of the weights") {
  for (const MakeAlgorithms& algorithms : {MakeAlgorithms(none), MakeAlgorithms(ema)}) {
    const Folder folder;
    int evaluations = 0;
    for (const bool again : {false, true}) {
      CAPTURE(again);
      const Warnings warnings;
      evaluations = 0;
      Trainer trainer(counting_options(algorithms, folder, evaluations));
      trainer.fit();
      CHECK(evaluations == (again ? 0 : 8));
      CHECK_FALSE(warnings.say("is that of weights which no checkpoint has"));
      for (const saving::Found& found : saving::list_checkpoints(folder / "ck")) {
        CHECK(found.manifest.metrics.contains("a/CrossEntropy"));
        CHECK(found.manifest.metrics.contains("b/CrossEntropy"));
      }
      trainer.predict(tiny_loader(8, 4));
      trainer.state().run->with_model(WeightsUse::EVALUATION, /*seed=*/1,
                                      [](Model& model) { model.forward(tiny_data(4)); });
      trainer.state().run->weights_version();
      for (const char* label : {"a", "b"}) CHECK(trainer.state().metrics.is_current(label, "CrossEntropy"));
    }
  }
}

TEST_CASE("What a metric counts in the model, or a pass writes into weights while it evaluates, is no change either") {
  for (const MakeAlgorithms& algorithms : {MakeAlgorithms(none), MakeAlgorithms(ema)}) {
    const Folder folder;
    int evaluations = 0;
    TrainerOptions options = counting_options(algorithms, folder, evaluations, /*more=*/true);
    options.max_duration = "8ep";
    options.callbacks.add(callbacks::ThresholdStopper(
        {.monitor = "CrossEntropy", .dataloader_label = "a", .threshold = 1000, .better = Better::LOWER}));
    const Warnings warnings;
    Trainer trainer(std::move(options));
    trainer.fit();
    CHECK(trainer.state().timestamp.epoch == 1);
    CHECK(trainer.best_checkpoint());
    CHECK_FALSE(warnings.say("had no effect"));
  }
}

TEST_CASE("What a callback writes between the passes of an evaluation is a change of the weights") {
  for (const bool is_buffer : {false, true}) {
    CAPTURE(is_buffer);
    const Folder folder;
    const Warnings quiet;
    int evaluations = 0;
    TrainerOptions options = counting_options(none, folder, evaluations);
    options.max_duration = "1ep";
    options.callbacks.add(At([&](Event event, const State& state) {
      if (event != Event::EVAL_BATCH_START || state.dataloader_label != "b" || state.eval_timestamp.batch != 1) return;
      const at::NoGradGuard no_grad;
      const Model& model = *state.model;
      at::Tensor tensor = is_buffer ? model.buffers()[0] : model.parameters()[0];
      tensor.mul_(2);
    }));
    Trainer trainer(std::move(options));
    trainer.fit();
    for (const char* label : {"a", "b"}) CHECK_FALSE(trainer.state().metrics.is_current(label, "CrossEntropy"));
  }
}

}  // namespace
}  // namespace composer::test::evaluated_weights_test
