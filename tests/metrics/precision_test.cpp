// What a metric makes of outputs in half precision: the same number as of the same outputs in double.
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "composer/metrics/answers.h"
#include "composer/metrics/binary.h"
#include "composer/metrics/bleu.h"
#include "composer/metrics/classification.h"
#include "composer/metrics/confusion_matrix.h"
#include "composer/metrics/correlation.h"
#include "composer/metrics/curves.h"
#include "composer/metrics/dice.h"
#include "composer/metrics/language.h"
#include "composer/metrics/loss_metrics.h"
#include "composer/metrics/mean_of.h"
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
  const at::Tensor labels = at::rand({1025, 3}, at::kDouble), on = at::randint(2, {1025, 3}, at::kLong);
  const at::Tensor related = wanted + values;
  return {
      {"RootMeanSquaredError", [] { return std::make_shared<RootMeanSquaredError>(); }, values, wanted},
      {"MeanAbsolutePercentageError", [] { return std::make_shared<MeanAbsolutePercentageError>(); }, values, wanted},
      {"SymmetricMeanAbsolutePercentageError", [] { return std::make_shared<SymmetricMeanAbsolutePercentageError>(); },
       values, wanted},
      {"R2Score", [] { return std::make_shared<R2Score>(); }, related, wanted},
      {"PearsonCorrCoef", [] { return std::make_shared<PearsonCorrCoef>(); }, related, wanted},
      {"SpearmanCorrCoef", [] { return std::make_shared<SpearmanCorrCoef>(); }, related, wanted},
      {"BinaryAUROC", [] { return std::make_shared<BinaryAUROC>(); }, yes, answers},
      {"BinaryAUROC, binned", [] { return std::make_shared<BinaryAUROC>(BinaryCurveOptions{.thresholds = 50}); }, yes,
       answers},
      {"BinaryAUROC of logits", [] { return std::make_shared<BinaryAUROC>(BinaryCurveOptions{.logits = true}); }, yes,
       answers},
      {"MulticlassAUROC", [] { return std::make_shared<MulticlassAUROC>(MulticlassCurveOptions{.num_classes = 10}); },
       logits, classes},
      {"MulticlassAveragePrecision",
       [] { return std::make_shared<MulticlassAveragePrecision>(MulticlassCurveOptions{.num_classes = 10}); }, logits,
       classes},
      {"MultilabelAUROC", [] { return std::make_shared<MultilabelAUROC>(MultilabelCurveOptions{.num_labels = 3}); },
       labels, on},
      {"BinaryFBetaScore", [] { return std::make_shared<BinaryFBetaScore>(BinaryFBetaOptions{.beta = 2}); }, yes,
       answers},
      {"MultilabelPrecision", [] { return std::make_shared<MultilabelPrecision>(MultilabelOptions{.num_labels = 3}); },
       labels, on},
      {"MultilabelExactMatch", [] { return std::make_shared<MultilabelExactMatch>(); }, labels, on},
      {"TopKAccuracy", [] { return std::make_shared<TopKAccuracy>(); }, logits, classes},
      {"ExactMatch", [] { return std::make_shared<ExactMatch>(); }, pixels.slice(2, 0, 1).slice(3, 0, 2),
       mask.slice(1, 0, 1).slice(2, 0, 2)},
      {"ConfusionMatrix", [] { return std::make_shared<ConfusionMatrix>(ConfusionMatrixOptions{.num_classes = 10}); },
       logits, classes},
      {"BLEUScore", [] { return std::make_shared<BLEUScore>(BLEUScoreOptions{.n_gram = 1}); }, tokens, next},
      {"MeanOf",
       [] {
         return std::make_shared<MeanOf>("Size",
                                         [](const Batch&, const Outputs& outputs) { return outputs.only().abs(); });
       },
       values, wanted},
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
