// Metrics for regression, yes-no questions and segmentation.
#include <cmath>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/metrics/binary.h"
#include "composer/metrics/dice.h"
#include "composer/metrics/miou.h"
#include "composer/metrics/regression.h"
#include "tests/metrics/kinds.h"
#include "tests/support/doctest.h"
#include "tests/support/warnings.h"

namespace composer::other_metrics_test {

using namespace metrics;
using test::value;

namespace {}  // namespace

TEST_CASE("Errors of regression are means over all elements, whatever the batches") {
  MeanSquaredError squared;
  MeanAbsoluteError absolute;
  for (Metric* metric : {static_cast<Metric*>(&squared), static_cast<Metric*>(&absolute)}) {
    CHECK(std::isnan(value(*metric)));
    metric->update(at::tensor({1.f, -2.f}), {{"target", at::zeros(2)}});
    metric->update(at::tensor({6.f}), {{"target", at::ones(1)}});
    CHECK((metric->better() == Better::LOWER));
    CHECK_THROWS_WITH_AS(metric->update(at::zeros({3, 1}), {{"target", at::zeros(3)}}),
                         doctest::Contains("one shape, got [3, 1] and [3]"), DataError);
  }
  CHECK(value(squared) == doctest::Approx(10));
  CHECK(value(absolute) == doctest::Approx(8. / 3));
}

TEST_CASE("Binary accuracy compares probabilities with the threshold, or logits") {
  const Batch batch{{"target", at::tensor({1, 0, 1, 0}, at::kLong)}};
  BinaryAccuracy even, strict({.threshold = 0.8}), logits({.logits = true});
  even.update(at::tensor({.9f, .6f, .7f, .1f}), batch);
  CHECK(value(even) == 0.75);
  strict.update(at::tensor({.9f, .6f, .7f, .1f}), batch);
  CHECK(value(strict) == 0.75);
  logits.update(at::tensor({2.f, -1.f, .1f, .2f}), batch);
  CHECK(value(logits) == 0.75);
  CHECK_THROWS_WITH_AS(BinaryAccuracy({.threshold = 1.5}), doctest::Contains("got 1.5"), ConfigError);
  CHECK_THROWS_AS(even.update(at::zeros({4, 2}), batch), DataError);
}

TEST_CASE("Binary accuracy takes outputs outside of 0 to 1 for logits, as torchmetrics does, and warns once") {
  const test::Warnings warnings;
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    BinaryAccuracy guessed, told({.logits = true}), strict({.threshold = 0.8});
    const at::Tensor logits = at::tensor({2.F, -1.F, .25F, 1.F}).to(type);
    const Batch batch{{"target", at::tensor({1, 0, 1, 1}, at::kLong)}};
    for (int i = 0; i < 2; ++i) {
      guessed.update(logits, batch);
      told.update(logits, batch);
    }
    CHECK(value(guessed) == 1);
    CHECK(value(told) == 1);
    strict.update(logits, batch);
    CHECK(value(strict) == 0.5);  // 0.88, 0.27, 0.56, 0.73
  }
  CHECK(warnings.texts.size() == 6);
  CHECK(warnings.say("BinaryAccuracy: outputs outside of 0 to 1 are taken for logits. Set logits = true"));
}

TEST_CASE("Binary accuracy of probabilities warns of nothing") {
  const test::Warnings warnings;
  BinaryAccuracy metric;
  metric.update(at::tensor({0.F, 1.F}), {{"target", at::tensor({0, 1}, at::kLong)}});
  CHECK(value(metric) == 1);
  CHECK(warnings.texts.empty());
}

TEST_CASE("Binary F1 is the harmonic mean of precision and recall, and NaN without any positive") {
  BinaryF1Score metric;
  const auto saying = [](std::vector<std::int64_t> classes) -> Outputs {
    return at::one_hot(at::tensor(classes), 2).to(at::kFloat);
  };
  metric.update(saying({0, 0}), {{"target", at::zeros(2, at::kLong)}});
  CHECK(std::isnan(value(metric)));
  metric.update(saying({1, 1, 0, 0, 1}), {{"target", at::tensor({1, 1, 1, 0, 0}, at::kLong)}});
  CHECK(value(metric) == doctest::Approx(2. / 3));
  CHECK_THROWS_AS(metric.update(at::zeros({2, 3}), {{"target", at::zeros(2)}}), DataError);
}

TEST_CASE("Dice is the mean over the classes that occur but the background, in percent, without ignored pixels") {
  const auto saying = [](std::vector<std::int64_t> classes) -> Outputs {
    return at::one_hot(at::tensor(classes), 4).to(at::kFloat);
  };
  Dice metric({.num_classes = 4, .ignore_index = 9});
  CHECK(std::isnan(value(metric)));
  metric.update(saying({0, 0, 1, 2}), {{"target", at::tensor({0, 0, 9, 0}, at::kLong)}});
  CHECK(value(metric) == 0);  // of class 2, which was predicted once
  metric.update(saying({1, 1, 2, 2}), {{"target", at::tensor({1, 0, 2, 2}, at::kLong)}});
  CHECK(value(metric) == doctest::Approx(100 * (2. / 3 + 4. / 5) / 2));  // class 3 does not occur
  CHECK((metric.better() == Better::HIGHER));
  CHECK_THROWS_WITH_AS(Dice({.num_classes = 1}), doctest::Contains("num_classes must be >= 2, got 1"), ConfigError);
  CHECK_THROWS_WITH_AS(metric.update(at::zeros({2, 3}), {{"target", at::zeros(2)}}),
                       doctest::Contains("expected outputs [N, 4, ...]"), DataError);
}

TEST_CASE("Targets of metrics of classes are whole numbers, and those of yes-no questions are 0 or 1") {
  const at::Tensor maps = at::rand({1, 2, 3, 3}), masks = at::full({1, 3, 3}, 0.5);
  Dice dice({.num_classes = 2});
  MIoU miou({.num_classes = 2});
  BinaryF1Score f1;
  BinaryAccuracy accuracy;
  CHECK_THROWS_WITH_AS(dice.update(maps, {{"target", masks}}),
                       doctest::Contains("Dice: classes must be whole numbers, got a target of type Float"), DataError);
  CHECK_THROWS_WITH_AS(miou.update(maps, {{"target", masks}}),
                       doctest::Contains("MIoU: classes must be whole numbers, got a target of type Float"), DataError);
  CHECK_THROWS_WITH_AS(f1.update(at::zeros({2, 2}), {{"target", at::rand(2)}}),
                       doctest::Contains("BinaryF1Score: classes must be whole numbers"), DataError);
  CHECK_THROWS_WITH_AS(accuracy.update(at::rand(2), {{"target", at::tensor({0.F, 0.3F})}}),
                       doctest::Contains("BinaryAccuracy: targets must be 0 (no) or 1 (yes)"), DataError);
  for (const std::int64_t neither : {2, 255, -100})
    CHECK_THROWS_WITH_AS(f1.update(at::zeros({2, 2}), {{"target", at::tensor({std::int64_t{1}, neither})}}),
                         doctest::Contains("BinaryF1Score: targets must be 0 (no) or 1 (yes)"), DataError);
  dice.update(maps, {{"target", masks.to(at::kBool)}});
  accuracy.update(at::rand(2), {{"target", at::tensor({0.F, 1.F})}});
}

TEST_CASE("Dice of batches that weigh the same takes a class that is not in a batch for found") {
  const auto saying = [](std::vector<std::int64_t> classes) -> Outputs {
    return at::one_hot(at::tensor(classes), 3).to(at::kFloat);
  };
  Dice metric({.num_classes = 3, .mean_of_batches = true});
  metric.update(saying({1, 0, 0}), {{"target", at::tensor({1, 1, 0}, at::kLong)}});
  CHECK(value(metric) == doctest::Approx(100 * (2. / 3 + 1) / 2));
  metric.update(saying({2}), {{"target", at::tensor({0}, at::kLong)}});
  CHECK(value(metric) == doctest::Approx(100 * ((2. / 3 + 1) / 2 + (1. + 0) / 2) / 2));
}

TEST_CASE("MIoU is the mean over the classes that occur, in percent, without ignored pixels") {
  const at::Tensor said = at::tensor({0, 0, 1, 1, 1, 0}, at::kLong).view({1, 2, 3});
  const at::Tensor target = at::tensor({0, 1, 1, 1, 9, 9}, at::kLong).view({1, 2, 3});
  MIoU metric({.num_classes = 4, .ignore_index = 9});
  CHECK(std::isnan(value(metric)));
  metric.update(at::one_hot(said, 4).permute({0, 3, 1, 2}).to(at::kFloat), {{"target", target}});
  CHECK(value(metric) == doctest::Approx(100 * (1. / 2 + 2. / 3) / 2));
  metric.reset();
  CHECK(std::isnan(value(metric)));
  CHECK_THROWS_WITH_AS(MIoU({}), doctest::Contains("num_classes must be >= 1, got 0"), ConfigError);
  CHECK_THROWS_AS(metric.update(at::zeros({1, 3, 2, 3}), {{"target", target}}), DataError);
}

}  // namespace composer::other_metrics_test
