#include "composer/algorithms/factorize.h"

#include <cmath>

#include <ATen/ATen.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "composer/core/error.h"
#include "composer/models/gpt.h"
#include "tests/support/cut_and_resumed.h"
#include "tests/support/doctest.h"

namespace composer::test::factorize_test {
namespace {

namespace nn = torch::nn;
using algorithms::Factorize;
using algorithms::factorize;
using algorithms::factorize_matrix;
using algorithms::FactorizeOptions;
using algorithms::max_rank_with_possible_speedup;

TEST_CASE("A layer is factorized if it is large enough and the factors cost less than it") {
  CHECK(max_rank_with_possible_speedup(512, 512) == 255);
  CHECK(max_rank_with_possible_speedup(512, 512, 9) == 460);
  nn::Sequential model{nn::Linear(16, 16), nn::Linear(16, 8), nn::Conv2d(nn::Conv2dOptions(16, 16, 3).groups(2)),
                       nn::Conv2d(16, 16, 3)};
  const FactorizeOptions large{.min_channels = 16, .latent_channels = 0.25, .min_features = 16, .latent_features = 7};
  const Replacements done = factorize(*model, large);
  REQUIRE(done.made.size() == 2);
  CHECK(done.made[0].name == "0");
  CHECK(done.made[1].name == "3");
  CHECK(model->named_parameters()["0.module0.weight"].sizes() == at::IntArrayRef{7, 16});
  CHECK_FALSE(model->named_parameters().contains("0.module0.bias"));
  CHECK(factorize(*model, large).made.empty());

  nn::Sequential again{nn::Linear(16, 16)};
  CHECK(factorize(*again, {.min_features = 16, .latent_features = 8}).made.empty());
}

TEST_CASE("The factors have the outputs of a layer whose weights have their rank") {
  const at::NoGradGuard no_grad;
  nn::Sequential model{nn::Conv2d(nn::Conv2dOptions(8, 8, 3).stride(2).padding(1).padding_mode(torch::kReflect)),
                       nn::Flatten(), nn::Linear(nn::LinearOptions(32, 12).bias(false))};
  model->to(at::kDouble);
  auto parameters = model->named_parameters();
  const auto of_rank = [](std::int64_t rows, std::int64_t columns) {
    return at::matmul(at::randn({rows, 2}, at::kDouble), at::randn({2, columns}, at::kDouble));
  };
  parameters["0.weight"].copy_(of_rank(8, 72).view({8, 8, 3, 3}));
  parameters["2.weight"].copy_(of_rank(12, 32));
  const at::Tensor x = at::randn({2, 8, 4, 4}, at::kDouble), before = model->forward(x);
  CHECK(factorize(*model, {.min_channels = 8, .latent_channels = 2, .min_features = 8, .latent_features = 2})
            .made.size() == 2);
  CHECK(at::allclose(model->forward(x), before, 1e-9, 1e-10));
}

TEST_CASE("The factors of frozen weights are frozen") {
  nn::Sequential model{nn::Linear(16, 16)};
  for (const at::Tensor& one : model->parameters()) one.set_requires_grad(false);
  factorize(*model, {.min_features = 16, .latent_features = 4});
  for (const at::Tensor& one : model->parameters()) CHECK_FALSE(one.requires_grad());
}

TEST_CASE("The factors of a linear layer have a bias exactly if the layer had one") {
  for (const bool keep_weights : {true, false})
    for (const bool bias : {true, false}) {
      CAPTURE(keep_weights);
      nn::Sequential model{nn::Linear(nn::LinearOptions(16, 16).bias(bias))};
      REQUIRE(factorize(*model, {.min_features = 16, .latent_features = 4, .keep_weights = keep_weights}).made.size() ==
              1);
      CHECK(model->named_parameters().contains("0.module1.bias") == bias);
      CHECK(model->forward(at::zeros({1, 16})).eq(0).all().item<bool>() == !bias);
    }
}

TEST_CASE("Without keep_weights the factors are random") {
  nn::Sequential model{nn::Linear(16, 16)};
  {
    const at::NoGradGuard no_grad;
    model->named_parameters()["0.weight"].zero_();
  }
  factorize(*model, {.min_features = 16, .latent_features = 4, .keep_weights = false});
  CHECK(model->named_parameters()["0.module0.weight"].abs().min().item<float>() > 0);
}

TEST_CASE("factorize_matrix finds factors that are better for its inputs than those of the weights alone") {
  at::manual_seed(3);
  const at::Tensor x = at::matmul(at::randn({50, 3}, at::kDouble), at::randn({3, 12}, at::kDouble)) +
                       0.1 * at::randn({50, 12}, at::kDouble);
  const at::Tensor w = at::randn({12, 10}, at::kDouble), y = at::matmul(x, w);
  const auto error = [&](const algorithms::LowRankFactors& found) {
    return (at::matmul(at::matmul(x, found.a), found.b) - y).square().sum().item<double>();
  };
  const auto found = factorize_matrix(x, y, w, {}, {}, 4);
  CHECK(found.rank == 4);
  CHECK(error(found) < 0.5 * error(algorithms::low_rank(w, 4)));
  CHECK_THROWS_AS(factorize_matrix(x, y, w, {}, {}, 0.01), ConfigError);
}

TEST_CASE("A run with Factorize that is cut off and resumed ends with the weights of one that is not") {
  for (const bool keep_weights : {true, false})
    check_cut_and_resumed(
        [keep_weights] {
          at::manual_seed(5);
          const nn::Sequential body(nn::Linear(4, 4), nn::Linear(4, 3));
          TrainerOptions with = tiny_options();
          with.model = std::make_shared<models::Classifier>(body, models::ClassifierOptions{.num_classes = 3});
          with.optimizer = optim::adamw({.lr = 0.05});
          with.max_duration = "2ep";
          with.seed = 7;
          with.algorithms = {Factorize({.min_features = 4, .latent_features = 1, .keep_weights = keep_weights})};
          return with;
        },
        3);
}

TEST_CASE("Factorize splits the linear layers of a gpt, which then has fewer parameters") {
  const auto model = models::gpt({.vocabulary = 11, .sequence_length = 8, .width = 16, .depth = 1, .heads = 2});
  const auto count = [&] {
    std::int64_t all = 0;
    for (const at::Tensor& one : model->parameters()) all += one.numel();
    return all;
  };
  const std::int64_t before = count();
  CHECK(factorize(*model, {.min_features = 16, .latent_features = 4}).made.size() == 4);
  CHECK(count() < before);
  CHECK_NOTHROW(model->forward({{"input_ids", at::zeros({2, 8}, at::kLong)}}));
}

TEST_CASE("Factorize refuses options with which nothing could be factorized") {
  CHECK_THROWS_WITH_AS(Factorize({.factorize_convs = false, .factorize_linears = false}),
                       doctest::Contains("are both false"), ConfigError);
  CHECK_THROWS_WITH_AS(Factorize({.min_channels = 0}), "Factorize: min_channels must be at least 1, got 0",
                       ConfigError);
  CHECK_THROWS_WITH_AS(Factorize({.latent_features = 0}), "Factorize: latent_features must be > 0, got 0", ConfigError);
  CHECK_THROWS_AS(Factorize({.min_features = -1}), ConfigError);
  CHECK_THROWS_AS(Factorize({.latent_channels = std::nan("")}), ConfigError);
}

}  // namespace
}  // namespace composer::test::factorize_test
