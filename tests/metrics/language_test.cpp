#include "composer/metrics/language.h"

#include <cmath>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/metrics/loss_metrics.h"
#include "tests/metrics/kinds.h"
#include "tests/support/doctest.h"

namespace composer::language_test {

using namespace metrics;
using test::value;

namespace {

const at::Tensor kLogits = at::linspace(0, 1, 2 * 3 * 4).mul(41).remainder(3).view({2, 3, 4});
const at::Tensor kTargets = at::tensor({3, -100, 0, 2, 2, -100}, at::kLong).view({2, 3});

}  // namespace

TEST_CASE("Language cross entropy is the mean over the tokens that are not ignored, and perplexity its exponential") {
  const double expected = at::cross_entropy_loss(kLogits.view({6, 4}), kTargets.view(6)).item<double>();
  LanguageCrossEntropy entropy;
  LanguagePerplexity perplexity;
  for (Metric* metric : {static_cast<Metric*>(&entropy), static_cast<Metric*>(&perplexity)})
    for (std::int64_t row : {0, 1})
      metric->update(kLogits.slice(0, row, row + 1), {{"target", kTargets.slice(0, row, row + 1)}});
  CHECK(value(entropy) == doctest::Approx(expected));
  CHECK(value(perplexity) == doctest::Approx(std::exp(expected)));
  CHECK(perplexity.name() == "LanguagePerplexity");
  CHECK(perplexity.fresh()->name() == "LanguagePerplexity");
  CHECK(std::isnan(value(*perplexity.fresh())));
}

TEST_CASE("Masked accuracy leaves out ignored tokens") {
  MaskedAccuracy metric;
  metric.update(at::one_hot(at::tensor({3, 1, 0, 2, 1, 0}, at::kLong).view({2, 3}), 4).to(at::kFloat),
                {{"target", kTargets}});
  CHECK(value(metric) == 0.75);
  MaskedAccuracy nothing({.ignore_index = 2});
  nothing.update(kLogits.slice(0, 0, 1), {{"target", at::full({1, 3}, 2, at::kLong)}});
  CHECK(std::isnan(value(nothing)));
}

TEST_CASE("Tokens without logits are refused") {
  LanguageCrossEntropy metric;
  CHECK_THROWS_WITH_AS(metric.update(kLogits, {{"target", kTargets.view(6)}}),
                       doctest::Contains("got [2, 3, 4] and [6]"), DataError);
}

TEST_CASE("Tokens that are not whole numbers are refused") {
  LanguageCrossEntropy entropy;
  MaskedAccuracy accuracy;
  for (Metric* metric : {static_cast<Metric*>(&entropy), static_cast<Metric*>(&accuracy)})
    CHECK_THROWS_WITH_AS(metric->update(kLogits, {{"target", kTargets.to(at::kFloat)}}),
                         doctest::Contains(": classes must be whole numbers, got a target of type Float"), DataError);
}

TEST_CASE("Tokens that are neither in the vocabulary nor ignored are refused") {
  LanguageCrossEntropy entropy;
  LanguagePerplexity perplexity;
  MaskedAccuracy accuracy;
  CrossEntropy classes;
  const at::Tensor wrong = at::full_like(kTargets, 4);
  const auto refuses = [&](Metric& metric, const at::Tensor& logits, const at::Tensor& targets) {
    const std::string text = metric.name() + ": class 4 of sample 0 is out of range; classes are 0 to 3";
    CHECK_THROWS_WITH_AS(metric.update(logits, {{"target", targets}}), doctest::Contains(text.c_str()), DataError);
  };
  refuses(entropy, kLogits, wrong), refuses(perplexity, kLogits, wrong), refuses(accuracy, kLogits, wrong);
  refuses(classes, kLogits.flatten(0, 1), wrong.flatten());
}

}  // namespace composer::language_test
