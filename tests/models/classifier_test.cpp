#include "composer/models/classifier.h"

#include <ATen/ATen.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "composer/core/error.h"
#include "composer/metrics/classification.h"
#include "composer/util/loss.h"
#include "tests/models/support.h"
#include "tests/support/doctest.h"

namespace composer::classifier_test {

using models::Classifier;
using test::metric_names;

namespace {

using Names = std::vector<std::string>;

Batch batch() { return {{"input", at::ones({5, 4})}, {"target", at::tensor({0, 1, 2, 0, 1}, at::kLong)}}; }

}  // namespace

TEST_CASE("A classifier gives its module's logits and their cross entropy") {
  const torch::nn::Sequential net(torch::nn::Linear(4, 5), torch::nn::ReLU(), torch::nn::Linear(5, 3));
  Classifier model(net, {.num_classes = 3});
  const Outputs outputs = model.forward(batch());
  CHECK(outputs.only().equal(net.ptr()->forward(batch()["input"])));
  const Losses losses = model.loss(outputs, batch());
  CHECK(losses["total"].item<float>() ==
        doctest::Approx(at::cross_entropy_loss(outputs.only(), batch()["target"]).item<float>()));
  const Losses dense = model.loss(outputs, {{"target", ensure_targets_one_hot(outputs.only(), batch()["target"])}});
  CHECK(dense["total"].item<float>() == doctest::Approx(losses["total"].item<float>()));
}

TEST_CASE("A classifier's parameters are those of its module, under \"module\"") {
  Classifier model(torch::nn::Linear(4, 3), {.num_classes = 3});
  Names keys;
  for (const auto& parameter : model.named_parameters()) keys.push_back(parameter.key());
  CHECK(keys == Names{"module.weight", "module.bias"});
}

TEST_CASE("By default accuracy is measured in training, cross entropy and accuracy in evaluation") {
  const Classifier model(torch::nn::Linear(4, 3), {.num_classes = 3});
  CHECK(metric_names(model.get_metrics(true)) == Names{"MulticlassAccuracy"});
  CHECK(metric_names(model.get_metrics(false)) == Names{"CrossEntropy", "MulticlassAccuracy"});
}

TEST_CASE("Each call of get_metrics gives metrics of their own") {
  Classifier model(torch::nn::Linear(4, 3), {.num_classes = 3});
  const Metrics one = model.get_metrics(false), two = model.get_metrics(false);
  const Outputs outputs = model.forward(batch());
  for (const auto& metric : one) model.update_metric(batch(), outputs, *metric);
  CHECK_FALSE(std::isnan((*one.begin())->compute().item<double>()));
  CHECK(std::isnan((*two.begin())->compute().item<double>()));
}

TEST_CASE("Metrics, loss and names can be chosen") {
  Classifier model(torch::nn::Linear(4, 3),
                   {.train_metrics = Metrics(),
                    .val_metrics = Metrics(metrics::MulticlassAccuracy({.top_k = 2, .name = "Top-2"})),
                    .loss_fn = [](const at::Tensor& logits, const at::Tensor&) { return logits.sum() * 0 + 7; },
                    .input = "x",
                    .target = "y"});
  CHECK(model.get_metrics(true).empty());
  CHECK(metric_names(model.get_metrics(false)) == Names{"Top-2"});
  const Batch named{{"x", at::ones({2, 4})}, {"y", at::tensor({0, 1}, at::kLong)}};
  CHECK(model.loss(model.forward(named), named)["total"].item<float>() == 7);
  CHECK_THROWS_AS(model.forward(batch()), DataError);
}

TEST_CASE("A module that takes a batch gets all of it") {
  struct Weighted : torch::nn::Module {
    at::Tensor forward(const Batch& batch) { return batch["input"] * batch["weight"]; }
  };
  Classifier model(std::make_shared<Weighted>(), {.num_classes = 3});
  const Outputs outputs = model.forward({{"input", at::ones({2, 3})}, {"weight", at::full({2, 1}, 5)}});
  CHECK(outputs.only().equal(at::full({2, 3}, 5.F)));
}

TEST_CASE("A classifier without classes or module is refused") {
  CHECK_THROWS_WITH_AS(Classifier(torch::nn::Linear(4, 3), {}), "Classifier: num_classes must be >= 1, got 0",
                       ConfigError);
  CHECK_THROWS_WITH_AS(Classifier(torch::nn::Linear(4, 3), {.num_classes = -2, .train_metrics = Metrics()}),
                       doctest::Contains("got -2"), ConfigError);
  CHECK_THROWS_WITH_AS(Classifier(std::shared_ptr<torch::nn::LinearImpl>(), {.num_classes = 3}),
                       "Classifier: the module is null", ConfigError);
}

}  // namespace composer::classifier_test
