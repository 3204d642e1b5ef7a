#include "composer/metrics/classification.h"

#include <cmath>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "tests/metrics/kinds.h"
#include "tests/support/doctest.h"

namespace composer::classification_test {

using namespace metrics;
using test::value;

namespace {

// Logits of which `classes` are the highest.
at::Tensor saying(std::vector<std::int64_t> classes, std::int64_t num_classes) {
  return at::one_hot(at::tensor(classes), num_classes).to(at::kFloat);
}
Batch of(std::vector<std::int64_t> classes) { return {{"target", at::tensor(classes)}}; }
}  // namespace

TEST_CASE("A smaller last batch weighs by its size") {
  MulticlassAccuracy accuracy;
  accuracy.update(saying({0, 1, 2, 0}, 3), of({0, 1, 2, 1}));
  CHECK(value(accuracy) == 0.75);
  accuracy.update(saying({2}, 3), of({0}));
  CHECK(value(accuracy) == 0.6);
}

TEST_CASE("A metric to which nothing was added is NaN, also after a reset") {
  for (Average average : {Average::MICRO, Average::MACRO, Average::WEIGHTED}) {
    MulticlassAccuracy accuracy({.num_classes = 3, .average = average});
    CHECK(std::isnan(value(accuracy)));
    accuracy.update(saying({0}, 3), of({0}));
    CHECK(value(accuracy) == 1);
    accuracy.reset();
    CHECK(std::isnan(value(accuracy)));
    accuracy.update(saying({0}, 3), of({1}));
    CHECK(value(accuracy) == 0);
  }
}

TEST_CASE("A fresh metric has the options and nothing of what was added") {
  MulticlassAccuracy accuracy({.num_classes = 4, .top_k = 2, .name = "Top-2"});
  accuracy.update(saying({0}, 4), of({0}));
  const auto fresh = accuracy.fresh();
  CHECK(fresh->name() == "Top-2");
  CHECK((fresh->better() == Better::HIGHER));
  CHECK(std::isnan(value(*fresh)));
  fresh->update(at::tensor({3.f, 2.f, 1.f, 0.f}).view({1, 4}), of({1}));
  CHECK(value(*fresh) == 1);
  CHECK(value(accuracy) == 1);
}

TEST_CASE("The target may be among the k highest") {
  const at::Tensor logits = at::tensor({3.f, 2.f, 1.f, 0.f, 0.f, 1.f, 2.f, 3.f}).view({2, 4});
  for (auto [k, expected] : {std::pair{1, 0.5}, {2, 0.5}, {3, 0.5}, {4, 1.}}) {
    MulticlassAccuracy accuracy({.top_k = k});
    accuracy.update(logits, of({0, 0}));
    CHECK(value(accuracy) == expected);
  }
}

TEST_CASE("Averages over classes leave out those that never occur, and know precision from recall") {
  // class 0: 2 of 3 found, predicted twice; 1: found, predicted twice; 2 and 3: never
  const Outputs outputs = saying({0, 0, 1, 1}, 4);
  const Batch batch = of({0, 0, 0, 1});
  MulticlassRecall recall({.num_classes = 4, .average = Average::MACRO});
  recall.update(outputs, batch);
  CHECK(value(recall) == doctest::Approx((2. / 3 + 1) / 2));
  CHECK(at::allclose(recall.per_class(), at::tensor({2. / 3, 1., 0., 0.}, at::kDouble)));
  MulticlassPrecision precision({.num_classes = 4, .average = Average::MACRO});
  precision.update(outputs, batch);
  CHECK(value(precision) == doctest::Approx((1 + 0.5) / 2));
  MulticlassPrecision weighted({.num_classes = 4, .average = Average::WEIGHTED});
  weighted.update(outputs, batch);
  CHECK(value(weighted) == doctest::Approx((3 * 1 + 1 * 0.5) / 4));
  MulticlassF1Score f1({.num_classes = 4, .average = Average::MACRO});
  f1.update(outputs, batch);
  CHECK(value(f1) == doctest::Approx((2 * (2. / 3) / (5. / 3) + 2 * 0.5 / 1.5) / 2));
}

TEST_CASE("Ignored targets count nothing, whatever their class") {
  for (Average average : {Average::MICRO, Average::MACRO}) {
    for (std::int64_t ignored : {-100, 1}) {
      MulticlassAccuracy accuracy({.num_classes = 3, .average = average, .ignore_index = ignored});
      accuracy.update(saying({0, 2, 0, 0}, 3), of({0, 2, ignored, ignored}));
      CHECK(value(accuracy) == doctest::Approx(average == Average::MICRO ? 1 : 1));
    }
  }
}

TEST_CASE("Pixels of segmentation maps are samples") {
  const at::Tensor target = at::arange(2 * 3 * 4).remainder(3).view({2, 3, 4});
  const at::Tensor logits = at::one_hot(target, 3).permute({0, 3, 1, 2}).to(at::kFloat).contiguous();
  for (Average average : {Average::MICRO, Average::MACRO}) {
    MulticlassAccuracy accuracy({.num_classes = 3, .average = average});
    accuracy.update(logits, Batch{{"target", target}});
    CHECK(value(accuracy) == 1);
    accuracy.update(logits, Batch{{"target", (target + 1).remainder(3)}});
    CHECK(value(accuracy) == 0.5);
  }
}

TEST_CASE("Of targets that are probabilities the highest counts") {
  MulticlassAccuracy accuracy;
  accuracy.update(saying({0, 1}, 2), Batch{{"target", at::tensor({.9f, .1f, .6f, .4f}).view({2, 2})}});
  CHECK(value(accuracy) == 0.5);
}

TEST_CASE("Probabilities of which none is above 0 count nothing") {
  for (const Average average : {Average::MICRO, Average::MACRO, Average::WEIGHTED})
    for (const float nothing : {0.F, -1.F, std::nanf("")})
      for (const std::int64_t top_k : {1, 2}) {
        CAPTURE(nothing);
        MulticlassAccuracy accuracy({.num_classes = 3, .top_k = top_k, .average = average});
        accuracy.update(saying({0, 0}, 3), {{"target", at::full({2, 3}, nothing)}});
        CHECK(std::isnan(value(accuracy)));
        at::Tensor target = saying({0, 1, 2, 0}, 3);
        target[3].fill_(nothing);
        accuracy.update(saying({0, 1, 0, 0}, 3), {{"target", target}});
        CHECK(value(accuracy) == doctest::Approx(top_k == 1 ? 2. / 3 : value(accuracy)));
      }
}

TEST_CASE("Outputs and targets are found by their names") {
  MulticlassAccuracy accuracy({.output = "logits", .target = "label"});
  accuracy.update({{"features", at::zeros({1, 7})}, {"logits", saying({1}, 2)}},
                  {{"label", at::tensor({1}, at::kLong)}});
  CHECK(value(accuracy) == 1);
  CHECK_THROWS_AS(accuracy.update(saying({1}, 2), {{"label", at::tensor({1}, at::kLong)}}), DataError);
}

TEST_CASE("Wrong options and wrong shapes are refused") {
  CHECK_THROWS_WITH_AS(MulticlassAccuracy({.top_k = 0}), doctest::Contains("top_k"), ConfigError);
  CHECK_THROWS_WITH_AS(MulticlassAccuracy({.num_classes = 3, .top_k = 4}), doctest::Contains("got 4"), ConfigError);
  CHECK_THROWS_WITH_AS(MulticlassF1Score({.average = Average::MACRO}),
                       "MulticlassF1Score: num_classes must be >= 1, got 0", ConfigError);
  CHECK_THROWS_AS(MulticlassAccuracy({.num_classes = -1}), ConfigError);
  CHECK_THROWS_AS(MulticlassAccuracy().per_class(), ConfigError);
  MulticlassAccuracy accuracy({.num_classes = 3});
  CHECK_THROWS_WITH_AS(accuracy.update(saying({0}, 4), of({0})), doctest::Contains("[N, 3, ...]"), DataError);
}

TEST_CASE("Classes in a dimension of their own are refused, not taken for probabilities") {
  struct Row {
    const char* what;
    at::Tensor outputs, target;
  };
  const Row rows[] = {
      {"[N, 1]", at::zeros({100, 10}), at::zeros({100, 1}, at::kLong)},
      {"[N, 1] of floats", at::zeros({100, 10}), at::zeros({100, 1})},
      {"masks [N, 1, H, W]", at::zeros({2, 3, 4, 5}), at::zeros({2, 1, 4, 5}, at::kLong)},
      {"another number of samples", at::zeros({2, 3}), at::zeros({3}, at::kLong)},
      {"outputs of one column", at::zeros({100, 1}), at::zeros({100, 1}, at::kLong)},
  };
  for (const Row& row : rows)
    for (const Average average : {Average::MICRO, Average::MACRO}) {
      CAPTURE(row.what);
      MulticlassAccuracy accuracy({.num_classes = row.outputs.size(1), .average = average});
      CHECK_THROWS_WITH_AS(accuracy.update(row.outputs, {{"target", row.target}}),
                           doctest::Contains("MulticlassAccuracy: "), DataError);
      CHECK(std::isnan(value(accuracy)));
    }
}

TEST_CASE("Targets that are not whole numbers are no classes") {
  const at::Tensor logits = saying({0, 1, 2, 0}, 3), target = at::tensor({0.F, 1.F, 1.7F, 0.F});
  for (const Average average : {Average::MICRO, Average::MACRO}) {
    MulticlassAccuracy accuracy({.num_classes = 3, .average = average});
    CHECK_THROWS_WITH_AS(accuracy.update(logits, {{"target", target}}),
                         "MulticlassAccuracy: classes must be whole numbers, got a target of type Float; give "
                         "target.to(at::kLong) if its numbers are classes",
                         DataError);
    accuracy.update(logits, {{"target", target.to(at::kByte)}});
    CHECK(value(accuracy) > 0);
  }
}

TEST_CASE("A target that is no class is an error that names it and its sample, and -100 can be ignored") {
  const at::Tensor logits = saying({0, 1, 2, 0}, 3);
  for (const Average average : {Average::MICRO, Average::MACRO, Average::WEIGHTED}) {
    MulticlassAccuracy accuracy({.num_classes = 3, .average = average});
    CHECK_THROWS_WITH_AS(accuracy.update(logits, of({0, 1, 2, -100})),
                         doctest::Contains("MulticlassAccuracy: class -100 of sample 3"), DataError);
    CHECK_THROWS_WITH_AS(accuracy.update(logits, of({0, 3, 2, 1})), doctest::Contains("class 3 of sample 1"),
                         DataError);
    MulticlassAccuracy ignoring({.num_classes = 3, .average = average, .ignore_index = -100});
    ignoring.update(logits, of({0, 1, 0, -100}));
    CHECK(value(ignoring) == doctest::Approx(average == Average::MACRO ? (0.5 + 1 + 0) / 3 : 2. / 3));
    CHECK_THROWS_AS(ignoring.update(logits, of({0, 1, -1, -100})), DataError);
  }
}

TEST_CASE("More than the classes there are cannot be the highest") {
  MulticlassAccuracy accuracy({.top_k = 5});
  CHECK_THROWS_WITH_AS(accuracy.update(saying({0}, 3), of({0})), doctest::Contains("top_k is 5"), DataError);
}

TEST_CASE("With top_k, MACRO is over the classes in targets, as in torchmetrics, and F1 also over predicted ones") {
  // class 2 is predicted once and never a target
  const at::Tensor logits =
      at::tensor({3.F, 2.F, 1.F, 0.F, 1.F, 2.F, 3.F, 0.F, 1.F, 0.F, 3.F, 2.F, 2.F, 1.F, 0.F, 3.F}).view({4, 4});
  const Batch batch = of({1, 1, 0, 0});
  const MulticlassOptions options{.num_classes = 4, .top_k = 2, .average = Average::MACRO};
  MulticlassAccuracy accuracy(options);
  MulticlassRecall recall(options);
  MulticlassPrecision precision(options);
  MulticlassF1Score f1(options);
  for (Metric* metric : {static_cast<Metric*>(&accuracy), static_cast<Metric*>(&recall),
                         static_cast<Metric*>(&precision), static_cast<Metric*>(&f1)})
    metric->update(logits, batch);
  CHECK(value(accuracy) == doctest::Approx(0.75));  // (1/2 + 2/2) / 2
  CHECK(value(recall) == doctest::Approx(0.75));
  CHECK(value(precision) == doctest::Approx(1));  // (1/1 + 2/2) / 2
  CHECK(value(f1) == doctest::Approx((2. / 3 + 1) / 3));
}

TEST_CASE("A metric keeps no graph of the outputs") {
  MulticlassAccuracy accuracy;
  accuracy.update(saying({0}, 3).set_requires_grad(true), of({0}));
  CHECK_FALSE(accuracy.compute().requires_grad());
}

}  // namespace composer::classification_test
