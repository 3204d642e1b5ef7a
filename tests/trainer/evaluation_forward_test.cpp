#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "composer/core/error.h"
#include "composer/loggers/in_memory_logger.h"
#include "composer/metrics/loss_metrics.h"
#include "tests/support/doctest.h"
#include "tests/support/tiny.h"

namespace composer::test::evaluation_forward_test {
namespace {

std::shared_ptr<Loader> images(std::int64_t samples, std::int64_t batch_size) {
  return data::in_memory({{"input", at::sin(at::arange(samples * 3 * 36, at::kFloat)).view({samples, 3, 6, 6})},
                          {"target", at::arange(samples, at::kLong).remainder(3)}},
                         {.batch_size = batch_size, .shuffle = false});
}

std::shared_ptr<Model> convolutions() {
  at::manual_seed(5);
  namespace nn = torch::nn;
  nn::Sequential net(nn::Conv2d(3, 8, 3), nn::BatchNorm2d(8), nn::ReLU(), nn::Flatten(), nn::Linear(8 * 16, 3));
  return std::make_shared<models::Classifier>(net,
                                              models::ClassifierOptions{.num_classes = 3, .train_metrics = Metrics()});
}

TrainerOptions with_images(bool fold) {
  TrainerOptions options = tiny_options();
  options.model = convolutions();
  options.train_dataloader = images(16, 4);
  options.eval_dataloader = {{.dataloader = images(20, 2), .metrics = Metrics(metrics::CrossEntropy())}};
  options.fold_batch_norms = fold;
  options.seed = 3;
  return options;
}

double eval_loss(Trainer& trainer) { return trainer.state().metrics.at("eval", "CrossEntropy"); }

TEST_CASE("folding batch norms changes metrics and predictions by rounding only, and training not at all") {
  Trainer plain(with_images(false)), folded(with_images(true));
  plain.fit("2ep");
  folded.fit("2ep");
  CHECK(weights_of(folded).equal(weights_of(plain)));
  CHECK(eval_loss(folded) == doctest::Approx(eval_loss(plain)).epsilon(1e-6));
  const auto expected = plain.predict(images(20, 2)), got = folded.predict(images(20, 2));
  REQUIRE(got.size() == expected.size());
  bool differs = false;
  for (std::size_t i = 0; i < got.size(); ++i) {
    CHECK(at::allclose(got[i].only(), expected[i].only(), 1e-5, 1e-5));
    differs |= !got[i].only().equal(expected[i].only());
  }
  CHECK(differs);  // else nothing was folded
}

TEST_CASE("too few batches to be worth it are not folded") {
  Trainer plain(with_images(false)), folded(with_images(true));
  plain.fit("2ep");
  folded.fit("2ep");
  const auto expected = plain.predict(images(14, 2)), got = folded.predict(images(14, 2));
  for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i].only().equal(expected[i].only()));
}

TEST_CASE("batch norms whose folding would cost accuracy stay, and it is said") {
  // A channel that is 1e6 with a variance of 1e-6: each way to compute it rounds away another part.
  const auto hostile = [](bool fold) {
    TrainerOptions options = with_images(fold);
    const at::NoGradGuard no_grad;
    for (const auto& item : options.model->named_buffers()) {
      if (item.key().ends_with("running_mean")) item.value().fill_(1e6);
      if (item.key().ends_with("running_var")) item.value().fill_(1e-6);
    }
    return options;
  };
  Trainer plain(hostile(false)), folded(hostile(true));
  const auto expected = plain.predict(images(20, 2)), got = folded.predict(images(20, 2));
  for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i].only().equal(expected[i].only()));
}

TEST_CASE("a model that goes another way in later batches is evaluated as it is, without folding") {
  struct TwoWays : Model {
    torch::nn::Conv2d conv{nullptr};
    torch::nn::BatchNorm2d norm{nullptr};
    int calls = 0;
    TwoWays() {
      at::manual_seed(5);
      conv = register_module("conv", torch::nn::Conv2d(3, 3, 6));
      norm = register_module("norm", torch::nn::BatchNorm2d(3));
    }
    Outputs forward(const Batch& batch) override {
      const at::Tensor x = conv(batch["input"]);
      return batch["input"][0][0][0][0].item<float>() > 0 ? x.flatten(1) : norm(x).flatten(1);
    }
    Losses loss(const Outputs& outputs, const Batch&) override { return outputs.only().sum(); }
  };
  const auto run = [](bool fold) {
    TrainerOptions options = with_images(fold);
    options.model = std::make_shared<TwoWays>();
    Trainer trainer(std::move(options));
    trainer.fit("1ep");
    std::vector<at::Tensor> all;
    for (const Outputs& outputs : trainer.predict(images(40, 2))) all.push_back(outputs.only());
    return at::cat(all);
  };
  CHECK(at::allclose(run(true), run(false), 1e-5, 1e-6));
}

TEST_CASE("a layer's output that only later batches use besides its batch norm is evaluated as it is") {
  struct Shortcut : Model {
    torch::nn::Conv2d conv{nullptr};
    torch::nn::BatchNorm2d norm{nullptr};
    Shortcut() {
      at::manual_seed(5);
      conv = register_module("conv", torch::nn::Conv2d(3, 3, 6));
      norm = register_module("norm", torch::nn::BatchNorm2d(3));
      norm->running_mean.normal_();
      norm->running_var.uniform_(0.5, 2);
    }
    Outputs forward(const Batch& batch) override {
      const at::Tensor x = conv(batch["input"]), y = norm(x);
      const bool wide = batch["input"][0][0][0][0].item<float>() != 0;  // all batches but the first
      return (wide ? y + x : y).flatten(1);
    }
    Losses loss(const Outputs& outputs, const Batch& batch) override {
      return at::cross_entropy_loss(outputs.only(), batch["target"]);
    }
  };
  const auto run = [](bool fold) {
    TrainerOptions options = with_images(fold);
    options.model = std::make_shared<Shortcut>();
    Trainer trainer(std::move(options));
    trainer.eval();
    std::vector<at::Tensor> all;
    for (const Outputs& outputs : trainer.predict(images(40, 2))) all.push_back(outputs.only());
    return std::make_pair(eval_loss(trainer), at::cat(all));
  };
  const auto [loss, outputs] = run(false);
  const auto [folded_loss, folded_outputs] = run(true);
  CHECK(folded_loss == doctest::Approx(loss).epsilon(1e-6));
  CHECK(at::allclose(folded_outputs, outputs, 1e-5, 1e-6));
}

TEST_CASE("a tensor of a batch norm that was replaced between two evaluations is used, and folded from then on") {
  const auto run = [](bool fold) {
    TrainerOptions options = with_images(fold);
    const std::shared_ptr<Model> model = options.model;
    Trainer trainer(std::move(options));
    std::vector<at::Tensor> all;
    const auto predict = [&] {
      for (const Outputs& outputs : trainer.predict(images(20, 2))) all.push_back(outputs.only());
    };
    predict();
    for (const auto& module : model->modules())
      if (auto* norm = module->as<torch::nn::BatchNorm2dImpl>()) norm->weight = at::full({8}, -3.0);
    predict();
    predict();
    return all;
  };
  const std::vector<at::Tensor> plain = run(false), folded = run(true);
  REQUIRE(plain.size() == 30);
  REQUIRE(folded.size() == 30);
  bool differs = false;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    CAPTURE(i);
    CHECK(at::allclose(folded[i], plain[i], 1e-5, 1e-5));
    differs |= i >= 20 && !folded[i].equal(plain[i]);
  }
  CHECK(differs);  // else the third was not folded
}

TEST_CASE(
    "outputs of an evaluation are inference tensors unless that is turned off; predictions that are returned never") {
  for (const bool inference : {true, false}) {
    int seen = 0;
    TrainerOptions options = with_images(false);
    options.inference_mode = inference;
    options.callbacks = {At([&](Event event, const State& state) {
      if (event != Event::EVAL_AFTER_FORWARD && event != Event::PREDICT_AFTER_FORWARD) return;
      ++seen;
      CHECK(state.outputs.only().is_inference() == inference);
      CHECK_FALSE(state.outputs.only().requires_grad());
    })};
    Trainer trainer(std::move(options));
    trainer.eval();
    const std::vector<Outputs> results = trainer.predict(images(4, 2));
    CHECK(seen == 12);
    at::Tensor output = results[0].only();
    CHECK_FALSE(output.is_inference());
    output += 1;
    at::Tensor leaf = at::ones({3}).set_requires_grad(true);
    (output * leaf).sum().backward();
    CHECK(leaf.grad().defined());
  }
}

}  // namespace
}  // namespace composer::test::evaluation_forward_test
