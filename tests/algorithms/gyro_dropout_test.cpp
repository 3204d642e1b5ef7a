#include "composer/algorithms/gyro_dropout.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include "composer/core/error.h"
#include "composer/models/classifier.h"
#include "tests/support/cut_and_resumed.h"
#include "tests/support/doctest.h"
#include "tests/support/fake_run.h"

namespace composer::test::gyro_dropout_test {
namespace {

namespace nn = torch::nn;
using algorithms::drop_by_masks;
using algorithms::gyro_dropout;
using algorithms::gyro_dropout_period;
using algorithms::GyroDropout;
using algorithms::GyroDropoutPosition;

TEST_CASE("drop_by_masks uses each mask for a part of the batch, and keeps the mean") {
  const at::Tensor masks = at::tensor({1, 0, 0, 1}, at::kByte).view({2, 2});
  const at::Tensor got = drop_by_masks(at::ones({4, 2}), masks, 0.75);
  CHECK(at::equal(got, at::tensor({4., 0., 4., 0., 0., 4., 0., 4.}, at::kFloat).view({4, 2})));
  CHECK(at::equal(drop_by_masks(at::ones({3, 2}), masks, 0.75),
                  at::tensor({4., 0., 4., 0., 0., 4.}, at::kFloat).view({3, 2})));
  CHECK(at::equal(drop_by_masks(at::ones({1, 2}), masks, 0.75), at::tensor({4., 0.}, at::kFloat).view({1, 2})));
}

TEST_CASE("drop_by_masks leaves masks of the type of the input as they were") {
  const at::Tensor masks = at::tensor({1., 0.}, at::kFloat).view({1, 2});
  CHECK(at::equal(drop_by_masks(at::ones({1, 2}), masks, 0.75), at::tensor({4., 0.}, at::kFloat).view({1, 2})));
  CHECK(at::equal(masks, at::tensor({1., 0.}, at::kFloat).view({1, 2})));
}

TEST_CASE("A gyro dropout takes batches without samples, and inputs without features") {
  nn::Sequential model{nn::Dropout()};
  gyro_dropout(*model, {.sigma = 4, .tau = 2}, std::make_shared<GyroDropoutPosition>());
  CHECK(model->forward(at::ones({0, 3})).sizes() == at::IntArrayRef({0, 3}));
  CHECK(model->forward(at::ones({5})).sizes() == at::IntArrayRef({5}));
}

TEST_CASE("A gyro dropout keeps no more masks in memory than it uses at a time") {
  nn::Sequential model{nn::Dropout()};
  gyro_dropout(*model, {.sigma = 1'000'000'000'000, .tau = 2}, std::make_shared<GyroDropoutPosition>());
  const at::Tensor got = model->forward(at::ones({2, 4096}));
  CHECK_FALSE(at::equal(got[0], got[1]));
}

TEST_CASE("A gyro dropout follows its input to another device") {
  nn::Sequential model{nn::Dropout()};
  gyro_dropout(*model, {.sigma = 4, .tau = 2}, std::make_shared<GyroDropoutPosition>());
  model->forward(at::ones({2, 3}));
  CHECK(model->forward(at::ones({2, 3}, at::kMeta)).is_meta());
}

TEST_CASE("gyro_dropout_period spreads sigma masks, tau at a time, over the run, and is at least a batch") {
  CHECK(gyro_dropout_period(8, {.sigma = 4, .tau = 2}) == 4);
  CHECK(gyro_dropout_period(12, {.sigma = 3, .tau = 3}) == 12);
  CHECK(gyro_dropout_period(2, {.sigma = 8, .tau = 2}) == 1);
}

TEST_CASE("A gyro dropout changes its masks with the round and the seed only, and does nothing in evaluation") {
  nn::Sequential model(nn::Dropout(0.1), nn::Dropout(0.1));
  const auto position = std::make_shared<GyroDropoutPosition>();
  CHECK(gyro_dropout(*model, {.p = 0.5, .sigma = 64, .tau = 2}, position).made.size() == 2);
  const at::Tensor x = at::ones({4, 256});
  const at::Tensor first = model->forward(x);
  CHECK(at::equal(first[0], first[1]));
  CHECK_FALSE(at::equal(first[0], first[2]));
  CHECK(first.sum().item<double>() / 1024 == doctest::Approx(1).epsilon(0.3));  // two layers: a quarter is kept
  CHECK(at::equal(model->forward(x), first));
  position->round = 1;
  CHECK_FALSE(at::equal(model->forward(x), first));
  position->round = 0;
  CHECK(at::equal(model->forward(x), first));
  position->seed = 1;
  CHECK_FALSE(at::equal(model->forward(x), first));
  model->eval();
  CHECK(at::equal(model->forward(x), x));
}

TEST_CASE("A gyro dropout drops a share of p, and draws all masks from sigma ones") {
  nn::Sequential model{nn::Dropout()};
  const auto position = std::make_shared<GyroDropoutPosition>();
  gyro_dropout(*model, {.p = 0.3, .sigma = 2, .tau = 4}, position);
  const at::Tensor got = model->forward(at::ones({4, 10000})).ne(0);
  CHECK(got[0].to(at::kDouble).mean().item<double>() == doctest::Approx(0.7).epsilon(0.03));
  CHECK(std::get<0>(at::unique_dim(got, 0)).size(0) <= 2);
}

TEST_CASE("drop_by_masks gives a part of a batch the masks that it has in the whole batch") {
  const at::Tensor masks = at::rand({3, 5}).gt(0.5), x = at::rand({8, 5});
  const at::Tensor whole = drop_by_masks(x, masks, 0.5);
  for (const std::int64_t size : {1, 3, 4, 8})
    for (std::int64_t first = 0; first < 8; first += size) {
      CAPTURE(size);
      const std::int64_t samples = std::min<std::int64_t>(size, 8 - first);
      const at::Tensor part =
          drop_by_masks(x.narrow(0, first, samples), masks, 0.5, {.first = first, .samples = samples, .of = 8});
      CHECK(at::equal(part, whole.narrow(0, first, samples)));
    }
  // two rows for each sample, as of sequences that a model has flattened
  const at::Tensor rows = at::rand({16, 5});
  CHECK(at::equal(drop_by_masks(rows.narrow(0, 6, 4), masks, 0.5, {.first = 3, .samples = 2, .of = 8}),
                  drop_by_masks(rows, masks, 0.5).narrow(0, 6, 4)));
}

TEST_CASE("A run with GyroDropout ends with the same weights however its batches are split") {
  const auto weights = [](std::int64_t microbatch) {
    at::manual_seed(5);
    const nn::Sequential body(nn::Linear(4, 16), nn::Dropout(), nn::Linear(16, 3));
    TrainerOptions with = tiny_options();
    with.model = std::make_shared<models::Classifier>(body, models::ClassifierOptions{.num_classes = 3});
    with.train_dataloader = tiny_loader(18, 6);
    with.seed = 7;
    with.device_train_microbatch_size = microbatch;
    with.algorithms = {GyroDropout({.sigma = 12, .tau = 4})};
    Trainer trainer(std::move(with));
    trainer.fit();
    return weights_of(trainer);
  };
  const at::Tensor whole = weights(0);
  for (const std::int64_t microbatch : {1, 2, 4}) {
    CAPTURE(microbatch);
    CHECK(at::allclose(weights(microbatch), whole, 1e-4, 1e-6));
  }
}

TEST_CASE("A run with GyroDropout that is cut off and resumed ends with the weights of one that is not") {
  check_cut_and_resumed(
      [] {
        at::manual_seed(5);
        const nn::Sequential body(nn::Linear(4, 16), nn::Dropout(), nn::Linear(16, 3));
        TrainerOptions with = tiny_options();
        with.model = std::make_shared<models::Classifier>(body, models::ClassifierOptions{.num_classes = 3});
        with.max_duration = "2ep";
        with.seed = 7;
        with.algorithms = {GyroDropout({.sigma = 4, .tau = 2})};
        return with;
      },
      3);
}

TEST_CASE("GyroDropout refuses options that make no sense") {
  CHECK_THROWS_WITH_AS(GyroDropout({.p = 1}), "GyroDropout: p must be at least 0 and below 1, got 1", ConfigError);
  CHECK_THROWS_AS(GyroDropout({.p = NAN}), ConfigError);
  CHECK_THROWS_AS(GyroDropout({.sigma = 0}), ConfigError);
  CHECK_THROWS_AS(GyroDropout({.tau = 0}), ConfigError);
}

}  // namespace
}  // namespace composer::test::gyro_dropout_test
