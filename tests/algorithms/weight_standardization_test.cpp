#include "composer/algorithms/weight_standardization.h"

#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "composer/core/error.h"
#include "tests/support/cut_and_resumed.h"
#include "tests/support/doctest.h"

namespace composer::test::weight_standardization_test {
namespace {

namespace nn = torch::nn;
using algorithms::standardize_weights;
using algorithms::weight_standardization;
using algorithms::WeightStandardization;

TEST_CASE("Each output channel of a standardized weight has mean 0 and variance 1") {
  const at::Tensor weight = standardize_weights(at::randn({4, 3, 5, 5}, at::kDouble) * 3 + 1).flatten(1);
  CHECK(at::allclose(weight.mean(1), at::zeros({4}, at::kDouble), 0, 1e-12));
  CHECK(at::allclose(weight.var(1, false), at::ones({4}, at::kDouble)));
  CHECK(at::allclose(standardize_weights(at::tensor({1., 2., 3.}).view({1, 3})),
                     at::tensor({-1.2247448714, 0., 1.2247448714}).view({1, 3})));
}

TEST_CASE("A standardized weight has the layout of the weight") {
  const at::Tensor weight = at::randn({4, 3, 5, 5});
  const at::Tensor got = standardize_weights(weight.contiguous(at::MemoryFormat::ChannelsLast));
  CHECK(got.is_contiguous(at::MemoryFormat::ChannelsLast));
  CHECK(at::allclose(got, standardize_weights(weight), 1e-5, 1e-6));
  CHECK(standardize_weights(weight).is_contiguous());
}

TEST_CASE("A standardized convolution keeps nothing of a batch that has been trained") {
  nn::Sequential model{nn::Conv2d(2, 3, 1)};
  const at::Tensor weight = model->parameters()[0];
  weight_standardization(*model);
  model->forward(at::randn({2, 2, 4, 4})).sum().backward();
  CHECK(weight.grad().defined());
  CHECK_FALSE(static_cast<bool>(torch::autograd::impl::try_get_grad_accumulator(weight)));
}

TEST_CASE("Convolutions of every dimension compute with their standardized weight, which gets the gradient") {
  nn::Sequential model{nn::Conv1d(nn::Conv1dOptions(2, 3, 3).padding(1)),
                       nn::Unflatten(2, std::vector<std::int64_t>{2, 4}),
                       nn::Conv2d(nn::Conv2dOptions(3, 4, 1).stride(2).bias(false)),
                       nn::Unflatten(3, std::vector<std::int64_t>{2, 1}), nn::Conv3d(nn::Conv3dOptions(4, 2, 1))};
  const at::Tensor x = at::randn({2, 2, 8});
  std::vector<at::Tensor> weights;
  for (const auto& one : model->named_parameters())
    if (one.key().ends_with("weight")) weights.push_back(one.value());
  CHECK(weight_standardization(*model).made.size() == 3);
  CHECK(model->named_parameters()["4.parametrizations.weight.original"].is_same(weights[2]));
  const at::Tensor got = model->forward(x);

  nn::Sequential plain{nn::Conv1d(nn::Conv1dOptions(2, 3, 3).padding(1)),
                       nn::Unflatten(2, std::vector<std::int64_t>{2, 4}),
                       nn::Conv2d(nn::Conv2dOptions(3, 4, 1).stride(2).bias(false)),
                       nn::Unflatten(3, std::vector<std::int64_t>{2, 1}), nn::Conv3d(nn::Conv3dOptions(4, 2, 1))};
  {
    const at::NoGradGuard no_grad;
    auto parameters = plain->named_parameters();
    parameters["0.weight"].copy_(standardize_weights(weights[0]));
    parameters["2.weight"].copy_(standardize_weights(weights[1]));
    parameters["4.weight"].copy_(standardize_weights(weights[2]));
    for (const char* name : {"0.bias", "4.bias"}) parameters[name].copy_(model->named_parameters()[name]);
  }
  CHECK(at::allclose(got, plain->forward(x), 1e-5, 1e-6));
  got.square().sum().backward();
  for (const at::Tensor& weight : weights) CHECK(weight.grad().defined());
  CHECK(weight_standardization(*model).made.empty());
}

TEST_CASE("The last convolutions stay as they are if they are to be ignored") {
  nn::Sequential model{nn::Conv2d(1, 2, 1), Layer(nn::Sequential(nn::Conv2d(2, 2, 1))), nn::Conv2d(2, 1, 1)};
  const Replacements done = weight_standardization(*model, {.n_last_layers_ignore = 2});
  REQUIRE(done.made.size() == 1);
  CHECK(done.made[0].name == "0");
  CHECK(weight_standardization(*model, {.n_last_layers_ignore = 5}).made.empty());
}

TEST_CASE("A run with WeightStandardization that is cut off and resumed ends with the weights of one that is not") {
  const auto options = [] {
    at::manual_seed(5);
    const nn::Sequential body(nn::Unflatten(1, std::vector<std::int64_t>{4, 1, 1}), nn::Conv2d(4, 4, 1), nn::Flatten(),
                              nn::Linear(4, 3));
    TrainerOptions with = tiny_options();
    with.model = std::make_shared<models::Classifier>(body, models::ClassifierOptions{.num_classes = 3});
    with.optimizer = optim::adamw({.lr = 0.05});
    with.max_duration = "2ep";
    with.seed = 7;
    with.algorithms = {WeightStandardization()};
    return with;
  };
  check_cut_and_resumed(options, 3);
}

TEST_CASE("WeightStandardization refuses to ignore less than no layer") {
  CHECK_THROWS_WITH_AS(WeightStandardization({.n_last_layers_ignore = -1}),
                       "WeightStandardization: n_last_layers_ignore must be >= 0, got -1", ConfigError);
}

}  // namespace
}  // namespace composer::test::weight_standardization_test
