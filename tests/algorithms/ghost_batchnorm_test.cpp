#include "composer/algorithms/ghost_batchnorm.h"

#include <ATen/ATen.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "composer/core/error.h"
#include "composer/models/classifier.h"
#include "tests/support/cut_and_resumed.h"
#include "tests/support/doctest.h"

namespace composer::test::ghost_batchnorm_test {
namespace {

namespace nn = torch::nn;
using algorithms::ghost_batchnorm;
using algorithms::GhostBatchNorm;

TEST_CASE("ghost_batchnorm normalises each part by itself and moves the running statistics by shares of momentum") {
  nn::Sequential ours{nn::BatchNorm1d(3)};
  nn::BatchNorm1d plain(nn::BatchNormOptions(3).momentum(0.05));
  CHECK(ghost_batchnorm(*ours, {.ghost_batch_size = 4}).made.size() == 1);
  CHECK(ours->named_parameters().contains("0.batchnorm.weight"));
  const at::Tensor x = at::randn({8, 3});
  const at::Tensor first = plain->forward(x.slice(0, 0, 4)), second = plain->forward(x.slice(0, 4, 8));
  CHECK(at::equal(ours->forward(x), at::cat({first, second})));
  CHECK(at::equal(ours->named_buffers()["0.batchnorm.running_mean"], plain->running_mean));
  CHECK((ours->named_buffers()["0.batchnorm.num_batches_tracked"].scalar_type() == at::kLong));
  ours->eval();
  plain->eval();
  CHECK(at::equal(ours->forward(x.slice(0, 0, 3)), plain->forward(x.slice(0, 0, 3))));
  CHECK(ghost_batchnorm(*ours).made.empty());
}

TEST_CASE("ghost_batchnorm refuses fewer samples than a ghost batch in training, and a batch norm without momentum") {
  nn::Sequential model{nn::BatchNorm1d(3)};
  ghost_batchnorm(*model, {.ghost_batch_size = 4});
  CHECK_THROWS_WITH_AS(model->forward(at::randn({3, 3})),
                       "GhostBatchNorm: a microbatch has 3 samples, and ghost_batch_size is 4", DataError);
  nn::Sequential cumulative{nn::BatchNorm1d(nn::BatchNormOptions(3).momentum(std::nullopt))};
  CHECK_THROWS_WITH_AS(ghost_batchnorm(*cumulative), doctest::Contains("GhostBatchNorm: 0 has no momentum"),
                       ConfigError);
}

TEST_CASE("A run with GhostBatchNorm that is cut off and resumed ends with the weights of one that is not") {
  const auto options = [] {
    at::manual_seed(5);
    const nn::Sequential body(nn::Linear(4, 5), nn::BatchNorm1d(5), nn::Linear(5, 3));
    TrainerOptions with = tiny_options();
    with.model = std::make_shared<models::Classifier>(body, models::ClassifierOptions{.num_classes = 3});
    with.optimizer = optim::adamw({.lr = 0.05});
    with.max_duration = "2ep";
    with.seed = 7;
    with.algorithms = {GhostBatchNorm({.ghost_batch_size = 2})};
    return with;
  };
  check_cut_and_resumed(options, 3);
}

TEST_CASE("GhostBatchNorm refuses a ghost batch without samples") {
  CHECK_THROWS_WITH_AS(GhostBatchNorm({.ghost_batch_size = 0}),
                       "GhostBatchNorm: ghost_batch_size must be at least 1, got 0", ConfigError);
}

}  // namespace
}  // namespace composer::test::ghost_batchnorm_test
