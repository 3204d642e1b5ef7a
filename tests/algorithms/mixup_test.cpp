#include "composer/algorithms/mixup.h"

#include <cmath>

#include "composer/core/error.h"
#include "tests/support/doctest.h"
#include "tests/support/fake_run.h"
#include "tests/support/tiny.h"

namespace composer::mixup_test {

using algorithms::gen_mixing_coef;
using algorithms::MixUp;
using algorithms::mixup_batch;
using algorithms::MixUpDraw;
using test::FakeRun;

namespace {

const at::Tensor kSwap = at::tensor({1, 0}, at::kLong);

// Inputs that were drawn for this microbatch: row i tells which sample it was mixed with.
at::Tensor forward(MixUp& mixup, FakeRun& run, std::int64_t samples) {
  run.state.batch = {{"input", at::arange(samples, at::kDouble).view({-1, 1})},
                     {"target", at::zeros({samples}, at::kLong)}};
  mixup.apply(Event::BEFORE_FORWARD, run.state, run.logger);
  return run.state.batch["input"];
}

}  // namespace

TEST_CASE("mixup_batch mixes every sample with the one that the permutation names") {
  const auto [input, target] =
      mixup_batch(at::tensor({0., 1.}).view({2, 1}), at::tensor({0, 1}, at::kLong), {.25, kSwap});
  CHECK(at::equal(input, at::tensor({.25, .75}).view({2, 1})));
  CHECK(at::equal(target, kSwap));
}

TEST_CASE("mixup_batch makes floating-point inputs of whole numbers") {
  const auto [input, target] = mixup_batch(at::tensor({0, 100}, at::kByte), kSwap, {.25, kSwap});
  CHECK(at::allclose(input, at::tensor({25., 75.}).to(input.scalar_type())));
}

TEST_CASE("gen_mixing_coef leaves a sample at least half of itself") {
  CHECK(gen_mixing_coef(0.2, [](double, double) { return 0.9; }) == 1 - 0.9);
  CHECK(gen_mixing_coef(0.2, [](double a, double b) { return a == 0.2 && b == 0.2 ? 0.3 : NAN; }) == 0.3);
  CHECK(gen_mixing_coef(0, [](double, double) { return 0.5; }) == 0);
}

TEST_CASE("MixUp mixes targets before the loss") {
  MixUp mixup({.draw = [](std::int64_t) { return MixUpDraw{.25, kSwap}; }});
  FakeRun run;
  run.state.batch = {{"input", at::tensor({0., 1.}).view({2, 1})}, {"target", at::tensor({0, 2}, at::kLong)}};
  run.state.outputs = at::zeros({2, 3});
  mixup.apply(Event::BEFORE_FORWARD, run.state, run.logger);
  CHECK(at::equal(run.state.batch["target"], at::tensor({0, 2}, at::kLong)));
  mixup.apply(Event::BEFORE_LOSS, run.state, run.logger);
  CHECK(at::equal(run.state.batch["target"], at::tensor({.75, 0., .25, .25, 0., .75}, at::kFloat).view({2, 3})));
  CHECK_FALSE(mixup.interpolates_loss());
}

TEST_CASE("MixUp that interpolates the loss weighs the losses of both targets") {
  MixUp mixup({.interpolate_loss = true, .draw = [](std::int64_t) { return MixUpDraw{.25, kSwap}; }});
  CHECK(mixup.interpolates_loss());
  FakeRun run;
  const auto model = composer::test::tiny_model();
  run.state.model = Handle<Model>(model);
  const at::Tensor target = at::tensor({0, 2}, at::kLong);
  run.state.batch = {{"input", at::rand({2, 4})}, {"target", target}};
  mixup.apply(Event::BEFORE_FORWARD, run.state, run.logger);
  run.state.outputs = model->forward(run.state.batch);
  run.state.loss = model->loss(run.state.outputs, run.state.batch);
  const at::Tensor first = run.state.loss.only();
  Batch other = run.state.batch;
  other.set("target", target.flip(0));
  const at::Tensor second = model->loss(run.state.outputs, other).only();
  mixup.apply(Event::BEFORE_BACKWARD, run.state, run.logger);
  CHECK(at::allclose(run.state.loss["total"], first * .75 + second * .25));
  CHECK(run.state.loss["total"].requires_grad());
  CHECK(at::equal(run.state.batch["target"], target));
}

TEST_CASE("MixUp draws by seed, batch and microbatch, so that a resumed run draws the same") {
  MixUp mixup;
  FakeRun run;
  run.state.seed = 17;
  const at::Tensor first = forward(mixup, run, 32), second = forward(mixup, run, 32);
  run.state.timestamp = run.state.timestamp.to_next_batch();
  const at::Tensor next = forward(mixup, run, 32), next_second = forward(mixup, run, 32);
  CHECK_FALSE(at::equal(first, second));
  CHECK_FALSE(at::equal(first, next));
  CHECK_FALSE(at::equal(second, next_second));

  MixUp resumed;
  CHECK(at::equal(forward(resumed, run, 32), next));
  CHECK(at::equal(forward(resumed, run, 32), next_second));
  run.state.seed = 18;
  MixUp other_seed;
  CHECK_FALSE(at::equal(forward(other_seed, run, 32), next));
}

TEST_CASE("MixUp draws its share from the beta distribution") {
  for (const double alpha : {0.2, 1., 20.}) {
    CAPTURE(alpha);
    MixUp mixup({.alpha = alpha});
    FakeRun run;
    constexpr int kDraws = 4000;
    double mean = 0, square = 0;
    for (int i = 0; i < kDraws; ++i) {
      run.state.timestamp = run.state.timestamp.to_next_batch();
      const at::Tensor mixed = forward(mixup, run, 2);
      const double share = mixed.const_data_ptr<double>()[0];  // of sample 1 in sample 0; nothing in half of the draws
      CHECK(share >= 0);
      CHECK(share <= 0.5);
      mean += share / kDraws, square += share * share / kDraws;
    }
    // m = min(z, 1 - z) has E[m (1 - m)] = E[z (1 - z)], which is this for a symmetric beta distribution
    CHECK(2 * (mean - square) == doctest::Approx(alpha / (2 * (2 * alpha + 1))).epsilon(0.1));
  }
}

TEST_CASE("MixUp draws numbers for the smallest alpha too") {
  MixUp mixup({.alpha = 1e-9});
  FakeRun run;
  for (int i = 0; i < 100; ++i) {
    run.state.timestamp = run.state.timestamp.to_next_batch();
    CHECK(at::equal(forward(mixup, run, 8), at::arange(8, at::kDouble).view({-1, 1})));
  }
}

TEST_CASE("MixUp permutes so that each sample has each partner equally often") {
  MixUp mixup({.alpha = 1});
  FakeRun run;
  constexpr int kDraws = 6000;
  double counts[6] = {};
  for (int i = 0; i < kDraws; ++i) {
    run.state.timestamp = run.state.timestamp.to_next_batch();
    const at::Tensor mixed = forward(mixup, run, 3);
    const auto* x = mixed.const_data_ptr<double>();
    // who moved up, who moved down, who stayed: enough to tell the six permutations of three apart
    const auto sign = [&](int row) { return x[row] > row ? 1 : x[row] < row ? -1 : 0; };
    const int a = sign(0), b = sign(1), c = sign(2);
    int which = -1;
    if (a == 0 && b == 0 && c == 0) which = 0;
    if (a == 1 && b == -1 && c == 0) which = 1;
    if (a == 0 && b == 1 && c == -1) which = 2;
    if (a == 1 && b == 0 && c == -1) which = 3;
    if (a == 1 && b == 1 && c == -1) which = 4;
    if (a == 1 && b == -1 && c == -1) which = 5;
    REQUIRE(which >= 0);
    counts[which] += 1;
  }
  for (const double count : counts) CHECK(count == doctest::Approx(kDraws / 6.).epsilon(0.12));
}

TEST_CASE("MixUp refuses token ids, and outputs whose classes are not in dimension 1") {
  MixUp mixup;
  FakeRun run;
  for (const auto type : {at::kLong, at::kInt}) {
    run.state.batch = {{"input", at::zeros({2, 5}, type)}, {"target", at::zeros({2, 5}, at::kLong)}};
    CHECK_THROWS_WITH_AS(mixup.apply(Event::BEFORE_FORWARD, run.state, run.logger),
                         doctest::Contains("MixUp: \"input\" is [2, 5] of"), ConfigError);
  }
  run.state.batch = {{"input", at::zeros({2, 5})}, {"target", at::zeros({2, 5}, at::kLong)}};
  mixup.apply(Event::BEFORE_FORWARD, run.state, run.logger);
  run.state.outputs = at::zeros({2, 5, 7});
  CHECK_THROWS_WITH_AS(mixup.apply(Event::BEFORE_LOSS, run.state, run.logger),
                       doctest::Contains("MixUp: needs outputs [N, C, ...] with the classes in dimension 1; the output "
                                         "is [2, 5, 7], \"target\" is [2, 5]"),
                       ConfigError);
}

TEST_CASE("MixUp refuses options that make no sense") {
  CHECK_THROWS_WITH_AS(MixUp({.alpha = -1}), "MixUp: alpha must be >= 0, got -1", ConfigError);
  CHECK_THROWS_AS(MixUp({.alpha = NAN}), ConfigError);
  CHECK_THROWS_AS(MixUp({.input_key = ""}), ConfigError);
  CHECK_THROWS_AS(MixUp({.target_key = ""}), ConfigError);
}

}  // namespace composer::mixup_test
