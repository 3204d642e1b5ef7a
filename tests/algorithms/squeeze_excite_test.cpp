#include "composer/algorithms/squeeze_excite.h"

#include <ATen/ATen.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "composer/core/error.h"
#include "composer/models/resnet_cifar.h"
#include "tests/support/cut_and_resumed.h"
#include "tests/support/doctest.h"

namespace composer::test::squeeze_excite_test {
namespace {

namespace nn = torch::nn;
using algorithms::squeeze_excite;
using algorithms::squeeze_excite_2d;
using algorithms::SqueezeExcite;

nn::Conv2d convolution(std::int64_t in, std::int64_t out) { return nn::Conv2d(nn::Conv2dOptions(in, out, 1)); }

TEST_CASE("squeeze_excite_2d multiplies each channel by what two linear layers make of the means of all channels") {
  const Layer block = squeeze_excite_2d(6, 0.5);
  const auto weights = block->named_parameters();
  const at::Tensor down = weights["pool_and_mlp.2.weight"], up = weights["pool_and_mlp.4.weight"];
  CHECK(down.sizes() == at::IntArrayRef{3, 6});
  const at::Tensor x = at::randn({2, 6, 5, 4});
  const at::Tensor factors = at::sigmoid(at::matmul(at::relu(at::matmul(x.mean({2, 3}), down.t())), up.t()));
  CHECK(at::allclose(block(x), x * factors.view({2, 6, 1, 1})));
}

TEST_CASE("squeeze_excite replaces convolutions with enough input and output channels, and keeps their weights") {
  nn::Sequential model{convolution(3, 8), convolution(8, 8), convolution(8, 4),
                       Layer(nn::Sequential(convolution(4, 16)))};
  const at::Tensor weight = model->named_parameters()["1.weight"];
  const Replacements done = squeeze_excite(*model, {.latent_channels = 2, .min_channels = 8});
  REQUIRE(done.made.size() == 1);
  CHECK(done.made[0].name == "1");
  CHECK(model->named_parameters()["1.conv.weight"].is_same(weight));
  CHECK(model->named_parameters()["1.se.pool_and_mlp.2.weight"].sizes() == at::IntArrayRef{2, 8});
  CHECK(squeeze_excite(*model, {.latent_channels = 2, .min_channels = 8}).made.empty());
}

TEST_CASE("A run with SqueezeExcite that is cut off and resumed ends with the weights of one that is not") {
  const auto options = [] {
    at::manual_seed(5);
    const nn::Sequential body(nn::Unflatten(1, std::vector<std::int64_t>{4, 1, 1}), convolution(4, 4), nn::Flatten(),
                              nn::Linear(4, 3));
    TrainerOptions with = tiny_options();
    with.model = std::make_shared<models::Classifier>(body, models::ClassifierOptions{.num_classes = 3});
    with.optimizer = optim::adamw({.lr = 0.05});
    with.max_duration = "2ep";
    with.seed = 7;
    with.algorithms = {SqueezeExcite({.latent_channels = 2, .min_channels = 4})};
    return with;
  };
  check_cut_and_resumed(options, 3);
}

TEST_CASE("SqueezeExcite gives the convolutions of a ResNet blocks, and does not change its outputs' shape") {
  const auto model = models::resnet_cifar({.depth = 8});
  CHECK(squeeze_excite(*model, {.latent_channels = 0.25, .min_channels = 32}).made.size() == 4);
  CHECK(model->forward({{"input", at::randn({2, 3, 16, 16})}}).only().sizes() == at::IntArrayRef{2, 10});
}

TEST_CASE("SqueezeExcite refuses a hidden layer or convolutions without channels") {
  CHECK_THROWS_WITH_AS(SqueezeExcite({.latent_channels = 0}), "SqueezeExcite: latent_channels must be > 0, got 0",
                       ConfigError);
  CHECK_THROWS_WITH_AS(SqueezeExcite({.min_channels = 0}), "SqueezeExcite: min_channels must be at least 1, got 0",
                       ConfigError);
  CHECK_THROWS_AS(squeeze_excite_2d(0), ConfigError);
}

}  // namespace
}  // namespace composer::test::squeeze_excite_test
