// What a metric makes of outputs in half precision: the same number as of the same outputs in double.
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "composer/metrics/binary.h"
#include "composer/metrics/classification.h"
#include "composer/metrics/dice.h"
#include "composer/metrics/language.h"
#include "composer/metrics/loss_metrics.h"
#include "composer/metrics/miou.h"
#include "composer/metrics/regression.h"
#include "tests/metrics/kinds.h"
#include "tests/support/doctest.h"

namespace composer::precision_test {

using namespace metrics;
using test::value;

namespace {

// Outputs are in half precision, and so are targets unless they are classes.
struct Case {
  const char* name;
  std::function<std::shared_ptr<Metric>()> make;
  at::Tensor outputs, target;
};

std::vector<Case> cases() {
  const at::Tensor logits = at::randn({2050, 10}, at::kDouble).mul_(4);
  const at::Tensor classes = at::randint(10, {2050}, at::kLong);
  const at::Tensor soft = at::randn({2050, 10}, at::kDouble).softmax(1);
  const at::Tensor tokens = at::randn({5, 410, 33}, at::kDouble).mul_(4), next = at::randint(33, {5, 410}, at::kLong);
  const at::Tensor pixels = at::randn({3, 4, 20, 20}, at::kDouble), mask = at::randint(4, {3, 20, 20}, at::kLong);
  const at::Tensor values = at::randn({2050, 3}, at::kDouble).mul_(9), wanted = at::randn({2050, 3}, at::kDouble);
  const at::Tensor yes = at::rand({2050}, at::kDouble), answers = at::randint(2, {2050}, at::kLong);
  const at::Tensor near = at::full({2050}, 1.3862, at::kDouble);  // sigmoid is a little below 0.8
  const auto mse = [](const at::Tensor& x, const at::Tensor& y) { return (x - y).square().mean(); };
  const auto entropy = [](const at::Tensor& x, const at::Tensor& y) { return at::cross_entropy_loss(x, y); };
  return {
      {"CrossEntropy", [] { return std::make_shared<CrossEntropy>(); }, logits, classes},
      {"CrossEntropy of probabilities", [] { return std::make_shared<CrossEntropy>(); }, logits, soft},
      {"CrossEntropy of pixels", [] { return std::make_shared<CrossEntropy>(); }, pixels, mask},
      {"CrossEntropy, mean of batches",
       [] { return std::make_shared<CrossEntropy>(CrossEntropyOptions{.mean_of_batches = true}); }, logits, classes},
      {"CrossEntropy of probabilities, mean of batches",
       [] { return std::make_shared<CrossEntropy>(CrossEntropyOptions{.mean_of_batches = true}); }, logits, soft},
      {"LossMetric, classes", [=] { return std::make_shared<LossMetric>(LossMetricOptions{.loss_function = entropy}); },
       logits, classes},
      {"LossMetric, values", [=] { return std::make_shared<LossMetric>(LossMetricOptions{.loss_function = mse}); },
       values, wanted},
      {"LanguageCrossEntropy", [] { return std::make_shared<LanguageCrossEntropy>(); }, tokens, next},
      {"LanguagePerplexity", [] { return std::make_shared<LanguagePerplexity>(); }, tokens, next},
      {"MaskedAccuracy", [] { return std::make_shared<MaskedAccuracy>(); }, tokens, next},
      {"MulticlassAccuracy", [] { return std::make_shared<MulticlassAccuracy>(); }, logits, classes},
      {"MulticlassF1Score, macro",
       [] {
         return std::make_shared<MulticlassF1Score>(MulticlassOptions{.num_classes = 10, .average = Average::MACRO});
       },
       logits, classes},
      {"Dice", [] { return std::make_shared<Dice>(DiceOptions{.num_classes = 4}); }, pixels, mask},
      {"MIoU", [] { return std::make_shared<MIoU>(MIoUOptions{.num_classes = 4}); }, pixels, mask},
      {"MeanSquaredError", [] { return std::make_shared<MeanSquaredError>(); }, values, wanted},
      {"MeanAbsoluteError", [] { return std::make_shared<MeanAbsoluteError>(); }, values, wanted},
      {"BinaryAccuracy", [] { return std::make_shared<BinaryAccuracy>(BinaryAccuracyOptions{.threshold = 0.8}); }, yes,
       answers},
      {"BinaryAccuracy of logits",
       [] { return std::make_shared<BinaryAccuracy>(BinaryAccuracyOptions{.threshold = 0.8, .logits = true}); }, near,
       answers},
      {"BinaryF1Score", [] { return std::make_shared<BinaryF1Score>(); }, logits.narrow(1, 0, 2), answers},
  };
}

}  // namespace

TEST_CASE("A metric of outputs in half precision is that of the same numbers in double") {
  at::manual_seed(11);
  for (const Case& c : cases())
    for (const auto type : {at::kBFloat16, at::kHalf, at::kFloat}) {
      CAPTURE(std::string(c.name));
      CAPTURE(type);
      const bool classes = !c.target.is_floating_point();
      const at::Tensor outputs = c.outputs.to(type), target = classes ? c.target : c.target.to(type);
      const auto metric = c.make(), exact = c.make();
      for (int batch = 0; batch < 2; ++batch) {
        metric->update(outputs, {{"target", target}});
        exact->update(outputs.to(at::kDouble), {{"target", classes ? target : target.to(at::kDouble)}});
      }
      CHECK(value(*metric) == doctest::Approx(value(*exact)).epsilon(2e-6));
      CHECK(std::isfinite(value(*metric)));
    }
}

TEST_CASE("A running sum of float32 losses is made in double") {
  // float32 has no 2^26 + 17
  const at::Tensor outputs = at::ones({18});
  outputs[0] = 8192.F;
  MeanSquaredError metric;
  metric.update(outputs, {{"target", at::zeros({18})}});
  CHECK(value(metric) == (67108864. + 17.) / 18);
}

}  // namespace composer::precision_test
