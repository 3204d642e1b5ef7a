#include "composer/metrics/loss_metrics.h"

#include <cmath>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/util/loss.h"
#include "tests/metrics/kinds.h"
#include "tests/support/doctest.h"

namespace composer::loss_metrics_test {

using namespace metrics;
using test::value;

namespace {}  // namespace

TEST_CASE("Cross entropy over batches is that of all samples") {
  const at::Tensor logits = at::linspace(-3, 2, 5 * 4).mul(7).remainder(5).view({5, 4});
  const at::Tensor target = at::tensor({0, 3, 1, 1, 2}, at::kLong);
  for (bool dense : {false, true}) {
    CrossEntropy metric;
    for (auto [from, to] : {std::pair{0, 3}, {3, 4}, {4, 5}}) {
      const at::Tensor part = target.slice(0, from, to);
      metric.update(logits.slice(0, from, to), Batch{{"target", dense ? at::one_hot(part, 4).to(at::kFloat) : part}});
    }
    CHECK(value(metric) == doctest::Approx(at::cross_entropy_loss(logits, target).item<double>()));
  }
}

TEST_CASE("Cross entropy leaves out ignored targets, on samples and on pixels") {
  const at::Tensor flat = at::linspace(0, 1, 24).mul(31).remainder(3).view({8, 3});
  const at::Tensor target = at::tensor({0, -1, 2, 1, -1, 0, 1, 2}, at::kLong);
  const double expected = at::cross_entropy_loss(flat, target, {}, at::Reduction::Mean, -1).item<double>();
  CrossEntropy samples({.ignore_index = -1});
  samples.update(flat.slice(0, 0, 3), Batch{{"target", target.slice(0, 0, 3)}});
  samples.update(flat.slice(0, 3, 8), Batch{{"target", target.slice(0, 3, 8)}});
  CHECK(value(samples) == doctest::Approx(expected));

  CrossEntropy pixels({.ignore_index = -1});
  pixels.update(flat.view({2, 2, 2, 3}).permute({0, 3, 1, 2}), Batch{{"target", target.view({2, 2, 2})}});
  CHECK(value(pixels) == doctest::Approx(expected));
  CrossEntropy sequence({.ignore_index = -1});
  sequence.update(flat.view({2, 4, 3}).transpose(1, 2), Batch{{"target", target.view({2, 4})}});
  CHECK(value(sequence) == doctest::Approx(expected));
}

TEST_CASE("Cross entropy counts classes of uint8 that -100 would be") {
  const at::Tensor logits = at::linspace(-3, 2, 3 * 200).mul(7).remainder(5).view({3, 200});
  const at::Tensor target = at::tensor({156, 3, 156}, at::kByte);
  CrossEntropy metric;
  metric.update(logits, Batch{{"target", target}});
  CHECK(value(metric) == doctest::Approx(at::cross_entropy_loss(logits, target.to(at::kLong)).item<double>()));
}

TEST_CASE("A batch without targets that count is none of those that weigh the same") {
  const at::Tensor logits = at::linspace(-3, 2, 5 * 4).mul(7).remainder(5).view({5, 4});
  const at::Tensor target = at::tensor({0, 3, -100, 1, -100}, at::kLong);
  const auto of = [](const at::Tensor& x, const at::Tensor& y) { return at::cross_entropy_loss(x, y); };
  CrossEntropy one({.mean_of_batches = true});
  LossMetric two({.loss_function = of, .mean_of_batches = true, .loss_weight = [](const at::Tensor& y) {
                    return target_weight(y);
                  }});
  for (const auto& [from, to] : {std::pair{0, 2}, {2, 3}, {3, 5}}) {
    one.update(logits.slice(0, from, to), Batch{{"target", target.slice(0, from, to)}});
    two.update(logits.slice(0, from, to), Batch{{"target", target.slice(0, from, to)}});
  }
  const double expected =
      (of(logits.slice(0, 0, 2), target.slice(0, 0, 2)) + of(logits.slice(0, 3), target.slice(0, 3))).item<double>() /
      2;
  CHECK(value(one) == doctest::Approx(expected));
  CHECK(value(two) == doctest::Approx(expected));
}

TEST_CASE("A loss that ignores targets is averaged over the others, also of batches that have none") {
  const at::Tensor logits = at::linspace(0, 1, 24).mul(31).remainder(3).view({8, 3});
  const at::Tensor target = at::tensor({0, -100, -100, 1, -100, 0, 1, 2}, at::kLong);
  LossMetric metric({.loss_function = [](const at::Tensor& x, const at::Tensor& y) { return soft_cross_entropy(x, y); },
                     .loss_weight = [](const at::Tensor& y) { return target_weight(y); }});
  for (const auto& [from, to] : {std::pair{0, 1}, {1, 3}, {3, 8}})
    metric.update(logits.slice(0, from, to), Batch{{"target", target.slice(0, from, to)}});
  CHECK(value(metric) == doctest::Approx(at::cross_entropy_loss(logits, target).item<double>()));
}

TEST_CASE("On request each batch weighs the same") {
  CrossEntropy metric({.mean_of_batches = true});
  const at::Tensor logits = at::tensor({0.f, 1.f, 2.f, 4.f, 1.f, 0.f}).view({3, 2}),
                   target = at::tensor({0, 0, 1}, at::kLong);
  metric.update(logits.slice(0, 0, 2), Batch{{"target", target.slice(0, 0, 2)}});
  metric.update(logits.slice(0, 2, 3), Batch{{"target", target.slice(0, 2, 3)}});
  const double first = at::cross_entropy_loss(logits.slice(0, 0, 2), target.slice(0, 0, 2)).item<double>();
  const double second = at::cross_entropy_loss(logits.slice(0, 2, 3), target.slice(0, 2, 3)).item<double>();
  CHECK(value(metric) == doctest::Approx((first + second) / 2));
}

TEST_CASE("Any loss is averaged over all samples") {
  LossMetric metric(
      {.loss_function = [](const at::Tensor& x, const at::Tensor& y) { return at::mse_loss(x, y); }, .name = "Mse"});
  CHECK(metric.name() == "Mse");
  CHECK(std::isnan(value(metric)));
  metric.update(at::tensor({1.f, 2.f}), Batch{{"target", at::tensor({0.f, 0.f})}});
  metric.update(at::tensor({3.f}), Batch{{"target", at::tensor({0.f})}});
  CHECK(value(metric) == doctest::Approx(14. / 3));
  metric.reset();
  CHECK(std::isnan(value(metric)));
  CHECK((metric.better() == Better::LOWER));
}

TEST_CASE("A loss metric without its function, or with one that gives no scalar, is refused") {
  CHECK_THROWS_WITH_AS(LossMetric({}), doctest::Contains("loss_function is required"), ConfigError);
  LossMetric metric({.loss_function = [](const at::Tensor& x, const at::Tensor&) { return x; }});
  CHECK_THROWS_WITH_AS(metric.update(at::zeros(3), Batch{{"target", at::zeros(3)}}), doctest::Contains("got [3]"),
                       DataError);
}

}  // namespace composer::loss_metrics_test
