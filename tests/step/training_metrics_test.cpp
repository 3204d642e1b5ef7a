#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/optim/lbfgs.h>

#include "composer/core/error.h"
#include "composer/core/metric.h"
#include "composer/metrics/classification.h"
#include "composer/step/metric_set.h"
#include "tests/support/at_algorithm.h"
#include "tests/support/doctest.h"
#include "tests/support/error_of.h"
#include "tests/support/tiny.h"

namespace composer::test::training_metrics_test {
namespace {

// Counts samples, and notes whether autocast was on.
struct Counts : Metric {
  std::string name() const override { return "Counts"; }
  Better better() const override { return Better::HIGHER; }
  void update(const Outputs&, const Batch& batch) override {
    samples += batch["input"].size(0);
    (at::autocast::is_autocast_enabled(at::kCPU) ? with_autocast : without_autocast)++;
  }
  at::Tensor compute() const override { return at::scalar_tensor(samples, at::kLong); }
  void reset() override { samples = 0; }
  std::shared_ptr<Metric> fresh() const override { return std::make_shared<Counts>(); }

  std::int64_t samples = 0;
  inline static int with_autocast = 0, without_autocast = 0;
};

struct SumOfInputs : Metric {
  std::string name() const override { return "Inputs"; }
  Better better() const override { return Better::HIGHER; }
  void update(const Outputs&, const Batch& batch) override { sum += batch["input"].sum().item<double>(); }
  at::Tensor compute() const override { return at::scalar_tensor(sum, at::kDouble); }
  void reset() override { sum = 0; }
  std::shared_ptr<Metric> fresh() const override { return std::make_shared<SumOfInputs>(); }
  double sum = 0;
};

std::shared_ptr<Model> counting_model() {
  return std::make_shared<models::Classifier>(
      torch::nn::Linear(4, 3),
      models::ClassifierOptions{
          .num_classes = 3, .train_metrics = Metrics(Counts()), .val_metrics = Metrics(Counts())});
}

TEST_CASE("Metrics can be set back to what was kept any number of times") {
  const auto model = counting_model();
  MetricSet set(Metrics(metrics::MulticlassAccuracy({.num_classes = 3})), "train");
  const Batch batch{{"target", at::tensor({0, 1, 1}, at::kLong)}};
  const Outputs outputs(at::eye(3));
  set.update(*model, batch, outputs);
  const MetricSet::Kept kept = set.kept();
  std::vector<at::Tensor> before;
  for (const at::Tensor& sum : kept.sums) before.push_back(sum.clone());
  REQUIRE(!before.empty());
  for (int i = 0; i < 3; ++i) {
    set.restore(kept);
    const MetricSet::Kept now = set.kept();
    for (std::size_t s = 0; s < before.size(); ++s) CHECK(now.sums[s].equal(before[s]));
    set.update(*model, batch, outputs);
  }
}

TEST_CASE("An optimizer that runs its closure several times counts each batch once in the metrics of training") {
  TrainerOptions options = tiny_options();
  options.model = counting_model();
  options.device_train_microbatch_size = 3;
  options.optimizer =
      std::make_shared<torch::optim::LBFGS>(options.model->parameters(), torch::optim::LBFGSOptions(0.1).max_iter(5));
  const auto log = std::make_shared<EventLog>();
  options.callbacks = {log};
  options.max_duration = "2ba";
  Trainer trainer(std::move(options));
  trainer.fit();
  CHECK(log->count("before_train_batch") > 4);
  CHECK(trainer.state().metrics.at("train", "Counts") == 4);
}

TEST_CASE("Metrics see one and the same precision in training and in evaluation") {
  for (const Precision precision : {Precision::FP32, Precision::AMP_BF16}) {
    Counts::with_autocast = Counts::without_autocast = 0;
    TrainerOptions options = tiny_options();
    options.model = counting_model();
    options.precision = precision;
    options.eval_dataloader = tiny_loader(8, 4);
    Trainer(std::move(options)).fit();
    CHECK(Counts::with_autocast == (precision == Precision::FP32 ? 0 : 6));
    CHECK(Counts::without_autocast == (precision == Precision::FP32 ? 6 : 0));
  }
}

// A batch norm, and an eval_forward that runs the model itself, or takes what training has computed.
struct Normalized : Model {
  explicit Normalized(bool own) : runs_itself(own) {
    register_module("norm", norm);
    register_module("frozen", frozen);
    register_module("fc", fc);
  }
  Outputs forward(const Batch& batch) override {
    trained.push_back(is_training());
    return fc->forward(norm->forward(batch["input"]));
  }
  Losses loss(const Outputs& outputs, const Batch& batch) override {
    return at::cross_entropy_loss(outputs.only(), batch["target"]);
  }
  Outputs eval_forward(const Batch& batch, const Outputs* outputs) override {
    return runs_itself || !outputs ? forward(batch) : *outputs;
  }
  Metrics get_metrics(bool) const override { return Counts(); }

  bool runs_itself;
  std::vector<bool> trained;  // in each forward
  torch::nn::BatchNorm1d norm{4}, frozen{4};
  torch::nn::Linear fc{4, 3};
};

TEST_CASE("Metrics of training run a model in evaluation mode, so that batch norms count each batch once") {
  for (const bool own : {false, true}) {
    TrainerOptions options = tiny_options();
    const auto model = std::make_shared<Normalized>(own);
    options.model = model;
    options.callbacks = {At([&model](Event event, const State&) {
      if (event == Event::FIT_START) return;
      if (event == Event::EPOCH_START) model->frozen->eval();  // modes are put back one by one
      if (event == Event::BATCH_END) CHECK_FALSE(model->frozen->is_training());
      if (event == Event::BATCH_END) CHECK(model->norm->is_training());
    })};
    Trainer(std::move(options)).fit();
    CHECK(model->norm->num_batches_tracked.item<std::int64_t>() == 4);
    const std::vector<bool> both{true, false, true, false, true, false, true, false};
    CHECK(model->trained == (own ? both : std::vector<bool>(4, true)));
  }
}

TEST_CASE("Metrics of training see the microbatch before algorithms, which must not change it in place") {
  for (const bool in_place : {false, true}) {
    TrainerOptions options = tiny_options();
    options.model = std::make_shared<models::Classifier>(
        torch::nn::Linear(4, 3), models::ClassifierOptions{.num_classes = 3, .train_metrics = Metrics(SumOfInputs())});
    options.max_duration = "1ba";
    double before = 0;
    options.algorithms = {AtAlgorithm({Event::BEFORE_FORWARD}, [&](State& state) {
      before += state.batch["input"].sum().item<double>();
      if (in_place)
        state.batch["input"].mul_(3);
      else
        state.batch.set("input", state.batch["input"] * 3);
    })};
    Trainer trainer(std::move(options));
    if (in_place) {
      CHECK_THROWS_WITH_AS(trainer.fit(),
                           doctest::Contains("AtAlgorithm failed at before_forward, epoch 0, batch 0\n  because: "
                                             "\"input\" of the batch was changed in place"),
                           RunError);
      continue;
    }
    trainer.fit();
    CHECK(trainer.state().metrics.at("train", "Inputs") == doctest::Approx(before));
  }
}

struct PerClass final : SumOfInputs {
  std::string name() const override { return "PerClass"; }
  at::Tensor compute() const override { return at::zeros({3}); }
  std::shared_ptr<Metric> fresh() const override { return std::make_shared<PerClass>(); }
};

TEST_CASE("A metric whose value is not 0-d is refused when it is reported, with its name and shape") {
  TrainerOptions options = tiny_options();
  options.model = std::make_shared<models::Classifier>(
      torch::nn::Linear(4, 3), models::ClassifierOptions{.num_classes = 3, .train_metrics = Metrics(PerClass())});
  Trainer trainer(std::move(options));
  CHECK(error_of([&] { trainer.fit(); }).find("metric train/PerClass: compute() must return a 0-d tensor, got [3]") !=
        std::string::npos);
  CHECK(trainer.state().timestamp.batch == 1);
}

}  // namespace
}  // namespace composer::test::training_metrics_test
