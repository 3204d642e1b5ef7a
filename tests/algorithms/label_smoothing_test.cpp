#include "composer/algorithms/label_smoothing.h"

#include <cmath>

#include "composer/core/error.h"
#include "composer/util/loss.h"
#include "tests/support/doctest.h"
#include "tests/support/fake_run.h"

namespace composer::label_smoothing_test {

using algorithms::LabelSmoothing;
using algorithms::smooth_labels;
using test::FakeRun;

TEST_CASE("smooth_labels gives each class its share of what it takes") {
  const at::Tensor smoothed = smooth_labels(at::zeros({2, 4}), at::tensor({1, -1}, at::kLong), 0.1);
  CHECK(at::allclose(smoothed, at::tensor({.025, .925, .025, .025, 0., 0., 0., 0.}, at::kFloat).view({2, 4})));
}

TEST_CASE("smooth_labels gives classes the very numbers that it gives their one-hot probabilities") {
  for (const double smoothing : {0., 0.1, 1. / 3, 1.}) {
    for (const auto& shape : {std::vector<std::int64_t>{5, 7}, {2, 7, 3}, {2, 7, 3, 2}}) {
      const at::Tensor logits = at::zeros(shape);
      at::Tensor target = at::arange(logits.numel() / 7).remainder(9).sub(2).clamp_max(6);  // two negative ones
      std::vector<std::int64_t> of_target = shape;
      of_target.erase(of_target.begin() + 1);
      target = target.view(of_target);
      const at::Tensor by_operators = smooth_labels(logits, ensure_targets_one_hot(logits, target), smoothing);
      CHECK(at::equal(smooth_labels(logits, target, smoothing), by_operators));
      CHECK(at::equal(smooth_labels(logits, target.to(at::kInt), smoothing), by_operators));
    }
  }
  CHECK_THROWS_AS(smooth_labels(at::zeros({1, 3}), at::tensor({3}, at::kLong), 0.1), DataError);
  CHECK_THROWS_AS(smooth_labels(at::zeros({1, 3}), at::tensor({1.f}), 0.1), DataError);
}

TEST_CASE("smooth_labels is in float32 whatever the logits are, so that probabilities add up to 1") {
  for (const auto type : {at::kBFloat16, at::kHalf, at::kFloat, at::kDouble}) {
    const at::Tensor smoothed = smooth_labels(at::zeros({1, 10}, type), at::tensor({3}, at::kLong), 0.1);
    CHECK((smoothed.scalar_type() == at::kFloat));
    CHECK(smoothed.sum().item<double>() == doctest::Approx(1).epsilon(1e-6));
  }
}

TEST_CASE("LabelSmoothing shows smoothed targets to the loss alone") {
  LabelSmoothing smoothing({.smoothing = 0.3, .target_key = "label"});
  FakeRun run;
  const at::Tensor target = at::tensor({0, 2}, at::kLong);
  run.state.batch = {{"input", at::ones({2, 5})}, {"label", target}};
  run.state.outputs = at::zeros({2, 3});
  smoothing.apply(Event::BEFORE_LOSS, run.state, run.logger);
  CHECK(at::equal(run.state.batch["label"], smooth_labels(at::zeros({2, 3}), target, 0.3)));
  smoothing.apply(Event::AFTER_LOSS, run.state, run.logger);
  CHECK(run.state.batch["label"].is_same(target));
}

TEST_CASE("Ignored targets have no share in the smoothed loss and no gradient, as in libtorch's own") {
  for (const double smoothing : {0., 0.1, 0.7, 1.})
    for (const bool dense : {false, true}) {
      CAPTURE(smoothing);
      at::manual_seed(5);
      const at::Tensor ours = at::randn({4, 3, 2}, at::kDouble).requires_grad_(),
                       torchs = ours.detach().clone().requires_grad_();
      const at::Tensor target = at::tensor({1, -100, 2, -100, 0, 1, -100, 2}, at::kLong).view({4, 2});
      const at::Tensor given = dense ? ensure_targets_one_hot(ours, target) : target;
      const at::Tensor loss = soft_cross_entropy(ours, smooth_labels(ours, given, smoothing));
      const at::Tensor expected = at::cross_entropy_loss(torchs, target, {}, at::Reduction::Mean, -100, smoothing);
      CHECK(loss.item<double>() == doctest::Approx(expected.item<double>()).epsilon(1e-6));
      loss.backward();
      expected.backward();
      CHECK(at::allclose(ours.grad(), torchs.grad(), 1e-5, 1e-7));
      CHECK(ours.grad().transpose(1, 2).masked_select(target.lt(0).unsqueeze(2)).abs().max().item<double>() == 0);
    }
}

TEST_CASE("LabelSmoothing refuses outputs whose classes are not in dimension 1") {
  LabelSmoothing smoothing;
  FakeRun run;
  run.state.batch = {{"input_ids", at::zeros({2, 5}, at::kLong)}, {"target", at::zeros({2, 5}, at::kLong)}};
  run.state.outputs = at::zeros({2, 5, 7});
  CHECK_THROWS_WITH_AS(
      smoothing.apply(Event::BEFORE_LOSS, run.state, run.logger),
      "LabelSmoothing: needs outputs [N, C, ...] with two or more classes in dimension 1; the output is "
      "[2, 5, 7], \"target\" is [2, 5]. For a language model, smooth the targets in its loss instead: "
      "set label_smoothing of at::cross_entropy_loss or GptOptions",
      ConfigError);
}

TEST_CASE("LabelSmoothing refuses a regression, whose outputs have no classes") {
  for (const auto& shape : std::vector<std::vector<std::int64_t>>{{4}, {4, 1}}) {
    LabelSmoothing smoothing;
    FakeRun run;
    run.state.batch = {{"input", at::zeros({4, 2})}, {"target", at::zeros(shape)}};
    run.state.outputs = at::zeros(shape);
    CHECK_THROWS_WITH_AS(smoothing.apply(Event::BEFORE_LOSS, run.state, run.logger),
                         doctest::Contains("LabelSmoothing: needs outputs [N, C, ...] with two or more classes"),
                         ConfigError);
  }
}

TEST_CASE("LabelSmoothing refuses options that make no sense") {
  CHECK_THROWS_WITH_AS(LabelSmoothing({.smoothing = 1.5}), "LabelSmoothing: smoothing must be from 0 to 1, got 1.5",
                       ConfigError);
  CHECK_THROWS_AS(LabelSmoothing({.smoothing = -0.1}), ConfigError);
  CHECK_THROWS_AS(LabelSmoothing({.smoothing = NAN}), ConfigError);
  CHECK_THROWS_AS(LabelSmoothing({.target_key = ""}), ConfigError);
}

}  // namespace composer::label_smoothing_test
