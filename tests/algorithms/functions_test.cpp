// The functional forms refuse what the algorithms refuse: who owns the loop calls them directly.
#include <cmath>
#include <cstdint>
#include <limits>

#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include "composer/algorithms/colout.h"
#include "composer/algorithms/cutmix.h"
#include "composer/algorithms/cutout.h"
#include "composer/algorithms/ema.h"
#include "composer/algorithms/gyro_dropout.h"
#include "composer/algorithms/layer_freezing.h"
#include "composer/algorithms/mixup.h"
#include "composer/algorithms/seq_length_warmup.h"
#include "composer/core/error.h"
#include "tests/support/doctest.h"

namespace composer::algorithms::functions_test {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

std::int64_t low_end(std::int64_t low, std::int64_t) { return low; }

TEST_CASE("Functions of GyroDropout refuse options that have no meaning, and take an empty batch") {
  GyroDropoutOptions options;
  options.tau = 0;
  CHECK_THROWS_WITH_AS(gyro_dropout_period(10, options), doctest::Contains("tau"), ConfigError);
  const at::Tensor x = at::ones({4, 3}), masks = at::ones({2, 3});
  for (const double p : {-0.1, 1.0, kNaN})
    CHECK_THROWS_WITH_AS(drop_by_masks(x, masks, p), doctest::Contains("p must be"), ConfigError);
  CHECK_THROWS_WITH_AS(drop_by_masks(x, at::ones({0, 3}), 0.5), doctest::Contains("[0, 3]"), ConfigError);
  CHECK(drop_by_masks(at::ones({0, 3}), masks, 0.5).sizes() == at::IntArrayRef({0, 3}));
  options = {};
  options.sigma = 0;
  CHECK_THROWS_WITH_AS(gyro_dropout_period(10, options), doctest::Contains("sigma"), ConfigError);
}

TEST_CASE("Functions that mix or cut images refuse shares outside of their range") {
  const auto beta = [](double, double) { return 0.5; };
  for (const double alpha : {-1.0, kNaN, HUGE_VAL})
    CHECK_THROWS_WITH_AS(gen_mixing_coef(alpha, beta), doctest::Contains("alpha"), ConfigError);
  const auto permute = [](std::int64_t n) { return at::arange(n); };
  CutOutOptions cut;
  for (const double share : {-0.1, 1.1, kNaN}) {
    CHECK_THROWS_WITH_AS(cutmix_box(8, 8, share, true, low_end), doctest::Contains("length"), ConfigError);
    CHECK_THROWS_WITH_AS(colout_kept(8, 8, share, 0, permute), doctest::Contains("p_row"), ConfigError);
    CHECK_THROWS_WITH_AS(colout_kept(8, 8, 0, share, permute), doctest::Contains("p_col"), ConfigError);
    cut.length = share;
    CHECK_THROWS_WITH_AS(cutout_holes(8, 8, cut, low_end), doctest::Contains("length"), ConfigError);
  }
  cut = {};
  cut.num_holes = 0;
  CHECK_THROWS_WITH_AS(cutout_holes(8, 8, cut, low_end), doctest::Contains("num_holes"), ConfigError);
}

TEST_CASE("mixup_batch refuses indices of another number of samples, also a single one") {
  const at::Tensor input = at::rand({4, 3}), target = at::arange(4);
  MixUpDraw draw;
  draw.mixing = 0.5;
  for (const std::int64_t n : {1, 3, 5}) {
    draw.permutation = at::zeros({n}, at::kLong);
    CHECK_THROWS_WITH_AS(mixup_batch(input, target, draw), doctest::Contains("permutation"), ConfigError);
  }
  draw.permutation = at::arange(4);
  CHECK(mixup_batch(input, target, draw).permuted_target.equal(target));
}

TEST_CASE("freeze_schedule, compute_ema and set_batch_sequence_length refuse values that have no meaning") {
  LayerFreezingOptions freezing;
  CHECK_THROWS_WITH_AS(freeze_schedule(kNaN, freezing), doctest::Contains("current_duration"), ConfigError);
  freezing.freeze_start = 1.5;
  CHECK_THROWS_WITH_AS(freeze_schedule(0.5, freezing), doctest::Contains("freeze_start"), ConfigError);

  torch::nn::Linear model(2, 2);
  WeightsByName averages = copy_weights(*model);
  for (const double smoothing : {-0.1, 1.1, kNaN})
    CHECK_THROWS_WITH_AS(compute_ema(*model, averages, smoothing), doctest::Contains("smoothing"), ConfigError);

  SeqLengthWarmupOptions warmup;
  warmup.input_key = "tokens";
  Batch batch;
  batch.set("tokens", at::zeros({2, 8}, at::kLong));
  for (const bool truncate : {true, false}) {
    warmup.truncate = truncate;
    for (const std::int64_t length : {0, -1})
      CHECK_THROWS_WITH_AS(set_batch_sequence_length(batch, length, warmup), doctest::Contains("length"), ConfigError);
  }
}

}  // namespace
}  // namespace composer::algorithms::functions_test
