// Metrics that report several values, keep rows, or log tables and images; and what torchmetrics does not tell of them.
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/core/logger.h"
#include "composer/core/model.h"
#include "composer/data/in_memory.h"
#include "composer/metrics/answers.h"
#include "composer/metrics/bleu.h"
#include "composer/metrics/classification.h"
#include "composer/metrics/confusion_matrix.h"
#include "composer/metrics/correlation.h"
#include "composer/metrics/curves.h"
#include "composer/metrics/mean_of.h"
#include "composer/trainer/trainer.h"
#include "tests/dist/results_in_ranks.h"
#include "tests/metrics/kinds.h"
#include "tests/support/doctest.h"
#include "tests/support/error_of.h"

namespace composer::test::several_values_test {
namespace {

using namespace metrics;

class Unchanged final : public Model {
 public:
  Outputs forward(const Batch& batch) override { return batch.at("input"); }
  Losses loss(const Outputs& outputs, const Batch&) override { return outputs.only().sum(); }
};

class Contents final : public LoggerDestination {
 public:
  void log_metrics(std::span<const LogEntry> metrics, std::int64_t, const State&) override {
    for (const auto& [key, value] : metrics) values[std::string(key)] = to_number(value);
  }
  void log_table(std::string_view key, const LogTable& table, std::int64_t, const State&) override {
    tables[std::string(key)] = table;
  }
  void log_images(std::string_view key, const LogImages& images, std::int64_t, const State&) override {
    pictures[std::string(key)] = images.images;
  }
  std::map<std::string, double> values;
  std::map<std::string, LogTable> tables;
  std::map<std::string, at::Tensor> pictures;
};

Batch cats_and_dogs() {
  at::Tensor logits = at::zeros({6, 3});
  const at::Tensor predicted = at::tensor({0, 0, 1, 1, 1, 2}, at::kLong);
  logits.scatter_(1, predicted.unsqueeze(1), 1);
  return {{"input", logits}, {"target", at::tensor({0, 1, 1, 1, 0, 1}, at::kLong)}};
}

std::shared_ptr<Contents> evaluated(const Metrics& metrics, const std::shared_ptr<dist::World>& world,
                                    std::function<void(Trainer&)> then = {}) {
  const auto contents = std::make_shared<Contents>();
  TrainerOptions options;
  options.model = std::make_shared<Unchanged>();
  options.device = at::Device(at::kCPU);
  options.handle_signals = false;
  options.world = world;
  options.loggers = {contents};
  Trainer trainer(std::move(options));
  trainer.eval(
      {.eval_dataloader = Evaluator{.label = "test",
                                    .dataloader = data::in_memory(cats_and_dogs(), {.batch_size = 4, .shuffle = false}),
                                    .metrics = metrics}});
  if (then) then(trainer);
  return contents;
}

TEST_CASE("A value for each class is logged and monitored under the metric's name and the class's") {
  const Metrics metrics = {
      MulticlassRecall({.num_classes = 3, .class_names = {"cat", "dog", "owl"}}),
      MulticlassPrecision({.num_classes = 3, .average = Average::MACRO, .per_class = true}),
      TopKAccuracy({.k = {1, 2}}),
  };
  const auto log = evaluated(metrics, dist::World::alone(), [](Trainer& trainer) {
    CHECK(trainer.state().metrics.at("test", "MulticlassRecall/cat") == 0.5);
    CHECK((trainer.state().metrics.better("test", "MulticlassRecall/cat") == Better::HIGHER));
  });
  CHECK(log->values.at("metrics/test/MulticlassRecall") == 0.5);
  CHECK(log->values.at("metrics/test/MulticlassRecall/dog") == 0.5);
  CHECK(log->values.at("metrics/test/MulticlassRecall/owl") == 0);
  CHECK(log->values.at("metrics/test/MulticlassPrecision/1") == doctest::Approx(2. / 3));
  CHECK(log->values.at("metrics/test/TopKAccuracy/top1") == 0.5);
  CHECK(log->values.at("metrics/test/TopKAccuracy") == 0.5);
  CHECK(log->values.at("metrics/test/TopKAccuracy/top2") >= 0.5);
}

TEST_CASE("An evaluation logs the confusion matrix as a table and an image, once, also of several ranks") {
  const Metrics metrics = {ConfusionMatrix({.num_classes = 3, .class_names = {"cat", "dog", "owl"}})};
  const auto check = [](const Contents& log) {
    REQUIRE(log.tables.size() == 1);
    const LogTable& table = log.tables.at("metrics/test/ConfusionMatrix/table");
    CHECK(table.columns == std::vector<std::string>{"target \\ predicted", "cat", "dog", "owl"});
    REQUIRE(table.rows.size() == 3);
    const std::vector<std::vector<double>> counts = {{1, 1, 0}, {1, 2, 1}, {0, 0, 0}};
    for (std::size_t row = 0; row < 3; ++row) {
      CHECK(std::get<std::string>(table.rows[row][0]) == table.columns[row + 1]);
      for (std::size_t column = 0; column < 3; ++column)
        CHECK(to_number(table.rows[row][column + 1]) == counts[row][column]);
    }
    const at::Tensor image = log.pictures.at("metrics/test/ConfusionMatrix/image");
    CHECK(image.sizes() == at::IntArrayRef({3, 258, 258}));
    CHECK(image.select(0, 0).select(0, 257).eq(1).all().item<bool>());       // no owl: white
    CHECK(image[0][86][86].item<float>() == doctest::Approx(1 - 0.97 / 2));  // half of the dogs
    CHECK(log.values.at("metrics/test/ConfusionMatrix") == 0.5);
  };
  check(*evaluated(metrics, dist::World::alone()));
  const auto of_ranks = dist::test::results_in_ranks(
      2, [&](const std::shared_ptr<dist::World>& world) { return evaluated(metrics, world); });
  check(*of_ranks[0]);
}

TEST_CASE("Normalised confusion matrices have shares of targets, predictions or samples") {
  const Batch batch = cats_and_dogs();
  const auto matrix = [&](Normalize how) {
    ConfusionMatrix metric({.num_classes = 3, .normalize = how});
    CHECK(metric.matrix().eq(0).all().item<bool>());
    metric.update(batch["input"], batch);
    return metric.matrix();
  };
  CHECK(at::equal(matrix(Normalize::NONE).sum(), at::scalar_tensor(6, at::kDouble)));
  CHECK(at::allclose(matrix(Normalize::TRUE).sum(1), at::tensor({1., 1., 0.}, at::kDouble)));
  CHECK(at::allclose(matrix(Normalize::PRED).sum(0), at::ones(3, at::kDouble)));
  CHECK(at::allclose(matrix(Normalize::ALL).sum(), at::ones({}, at::kDouble)));
}

TEST_CASE("R2 and correlation of values far from 0 keep their digits over any number of batches") {
  at::manual_seed(3);
  const at::Tensor x = at::randn({3000, 2}, at::kDouble), y = x + at::randn({3000, 2}, at::kDouble) / 2;
  R2Score r2, r2_far;
  PearsonCorrCoef pearson, pearson_far;
  for (std::int64_t from = 0; from < 3000; from += 5) {  // more batches than are kept apart
    const at::Tensor a = x.slice(0, from, from + 5), b = y.slice(0, from, from + 5);
    r2.update(a, {{"target", b}});
    pearson.update(a, {{"target", b}});
    r2_far.update(a + 1e7, {{"target", b + 1e7}});
    pearson_far.update(a + 1e7, {{"target", b + 1e7}});
  }
  const at::Tensor errors = (x - y).square().sum(0), squares = (y - y.mean(0)).square().sum(0);
  CHECK(value(r2) == doctest::Approx((1 - errors / squares).mean().item<double>()).epsilon(1e-12));
  CHECK(value(r2_far) == doctest::Approx(value(r2)).epsilon(1e-8));
  CHECK(value(pearson_far) == doctest::Approx(value(pearson)).epsilon(1e-8));
}

TEST_CASE("R2 of small numbers is exact: torchmetrics takes sums below 1e-4 for 0") {
  R2Score metric;
  metric.update(at::tensor({1e-3, 2e-3, 4e-3}, at::kDouble), {{"target", at::tensor({1e-3, 2e-3, 3e-3}, at::kDouble)}});
  CHECK(value(metric) == doctest::Approx(0.5));
  const auto of = [](const at::Tensor& output, const at::Tensor& target) {
    R2Score one;
    one.update(output, {{"target", target}});
    return value(one);
  };
  CHECK(of(at::ones(3), at::ones(3)) == 1);
  CHECK(of(at::zeros(3), at::ones(3)) == 0);
  CHECK(std::isnan(of(at::zeros(1), at::ones(1))));
}

TEST_CASE("R2 and correlation know equal values, also those that float64 rounds, in one batch and in many") {
  for (const int batches : {1, 3, 700}) {
    CAPTURE(batches);
    R2Score of_equal_targets, of_equal_outputs;
    PearsonCorrCoef correlation;
    for (int i = 0; i < batches; ++i) {
      const at::Tensor equal = at::full({3 + i % 5}, 0.1, at::kDouble), other = at::rand(equal.sizes(), at::kDouble);
      of_equal_targets.update(equal + 0.1, {{"target", equal}});
      of_equal_outputs.update(equal, {{"target", equal}});
      correlation.update(equal, {{"target", other}});
    }
    CHECK(value(of_equal_targets) == 0);
    CHECK(value(of_equal_outputs) == 1);
    CHECK(std::isnan(value(correlation)));
  }
}

TEST_CASE("A batch without rows changes nothing") {
  SpearmanCorrCoef ranks;
  ExactMatch matches;
  const at::Tensor two = at::rand({6, 2}), one = at::ones({4, 3}, at::kLong);
  ranks.update(two.slice(0, 0, 0), {{"target", two.slice(0, 0, 0)}});
  ranks.update(two, {{"target", two}});
  ranks.update(two.slice(0, 0, 0), {{"target", two.slice(0, 0, 0)}});
  matches.update(one.slice(0, 0, 0), {{"target", one.slice(0, 0, 0)}});
  matches.update(one, {{"target", one}});
  CHECK(value(ranks) == doctest::Approx(1));
  CHECK(value(matches) == 1);
}

TEST_CASE("Outputs of ignored targets are not looked at, whether the others are probabilities or logits") {
  const double nan = std::nan("");
  for (const std::int64_t thresholds : {0, 11}) {
    CAPTURE(thresholds);
    for (const double ignored : {7., -7., nan}) {
      CAPTURE(ignored);
      BinaryAUROC binary({.thresholds = thresholds, .ignore_index = -1});
      binary.update(at::tensor({.9, .1, .65, .35, ignored}, at::kDouble),
                    {{"target", at::tensor({1, 0, 0, 1, -1}, at::kLong)}});
      CHECK(value(binary) == 0.75);
      MultilabelAUROC labels({.num_labels = 2, .thresholds = thresholds, .ignore_index = -1});
      labels.update(at::tensor({.9, .1, .15, .85, ignored, ignored}, at::kDouble).view({3, 2}),
                    {{"target", at::tensor({1, 0, 0, 1, -1, -1}, at::kLong).view({3, 2})}});
      CHECK(value(labels) == 1);
      MulticlassAUROC classes({.num_classes = 2, .thresholds = thresholds, .ignore_index = -1});
      classes.update(at::tensor({.9, .1, .15, .85, ignored, ignored}, at::kDouble).view({3, 2}),
                     {{"target", at::tensor({0, 1, -1}, at::kLong)}});
      CHECK(value(classes) == 1);
    }
    BinaryAUROC undefined({.thresholds = thresholds});
    undefined.update(at::tensor({.1, nan, .3}, at::kDouble), {{"target", at::tensor({0, 1, 1}, at::kLong)}});
    CHECK(std::isnan(value(undefined)));
    undefined.reset();
    undefined.update(at::tensor({.1, .9}, at::kDouble), {{"target", at::tensor({0, 1}, at::kLong)}});
    CHECK(value(undefined) == 1);
  }
}

TEST_CASE("The area under the ROC curve is the share of pairs in the right order, ties counting half") {
  at::manual_seed(4);
  for (int problem = 0; problem < 20; ++problem) {
    const at::Tensor scores = at::randint(6, {40}).div(6), target = at::randint(2, {40}, at::kLong);
    BinaryAUROC metric;
    metric.update(scores.narrow(0, 0, 13), {{"target", target.narrow(0, 0, 13)}});
    metric.update(scores.narrow(0, 13, 27), {{"target", target.narrow(0, 13, 27)}});
    const at::Tensor yes = scores.masked_select(target.eq(1)).unsqueeze(1),
                     no = scores.masked_select(target.eq(0)).unsqueeze(0);
    const double expected = (yes.gt(no).to(at::kDouble) + yes.eq(no).to(at::kDouble) / 2).mean().item<double>();
    CHECK(value(metric) == doctest::Approx(expected).epsilon(1e-12));
  }
}

TEST_CASE("Curves of scores that are NaN are NaN, and binned ones begin where nothing is predicted") {
  BinaryAUROC metric;
  metric.update(at::tensor({.1, std::nan(""), .3}, at::kDouble), {{"target", at::tensor({0, 1, 1}, at::kLong)}});
  CHECK(std::isnan(value(metric)));
  // Scores of exactly 1 are at the highest threshold: half of the pairs are tied.
  BinaryAUROC exact, binned({.thresholds = 5});
  for (BinaryAUROC* one : {&exact, &binned})
    one->update(at::tensor({1., 1., 0., 1.}, at::kDouble), {{"target", at::tensor({1, 0, 0, 1}, at::kLong)}});
  CHECK(value(exact) == 0.75);
  CHECK(value(binned) == 0.75);
}

TEST_CASE("MeanOf averages any function: over values, weighted, or over batches by their samples") {
  const Batch two{{"input", at::zeros({2, 1})}, {"mask", at::tensor({1., 0.})}},
      one{{"input", at::zeros({1, 1})}, {"mask", at::ones(1)}};
  MeanOf values("Values", [](const Batch&, const Outputs& outputs) { return outputs.only(); });
  MeanOf weighted({.function = [](const Batch&, const Outputs& outputs) { return outputs.only(); },
                   .weight = [](const Batch& batch, const Outputs&) { return batch["mask"]; },
                   .better = Better::HIGHER,
                   .name = "Weighted"});
  MeanOf means("Means", [](const Batch&, const Outputs& outputs) { return outputs.only().mean(); });
  for (MeanOf* metric : {&values, &weighted, &means}) {
    CHECK(std::isnan(value(*metric)));
    metric->update(at::tensor({2., metric == &weighted ? std::nan("") : 4.}, at::kDouble), two);
    metric->update(at::tensor({9.}, at::kDouble), one);
  }
  CHECK(value(values) == 5);
  CHECK(value(weighted) == 5.5);
  CHECK(value(means) == 5);
  CHECK((weighted.better() == Better::HIGHER));
  CHECK(weighted.fresh()->name() == "Weighted");
  CHECK_THROWS_WITH_AS(MeanOf(MeanOfOptions{}), "MeanOf: function is required", ConfigError);
  CHECK_THROWS_WITH_AS(weighted.update(at::zeros({3, 3}), two),
                       "Weighted: weight must fit the values [3, 3] of function, got [2]", DataError);
}

TEST_CASE(
    "BLEU counts a run at most as often as the reference that has it most, without padding or what follows the end") {
  const auto bleu = [](const BLEUScoreOptions& options, const std::vector<std::int64_t>& output,
                       const std::vector<std::int64_t>& target) {
    BLEUScore metric(options);
    metric.update(at::tensor(output).unsqueeze(0), {{"target", at::tensor(target).unsqueeze(0)}});
    return value(metric);
  };
  CHECK(bleu({}, {1, 2, 3, 4, 5}, {1, 2, 3, 4, 5}) == 1);
  CHECK(bleu({.n_gram = 1}, {7, 7, 7, 7}, {7, 7, 8, 9}) == 0.5);
  CHECK(bleu({}, {1, 2, 3, 4, 5, -100, -100}, {1, -100, 2, 3, 4, 5}) == 1);
  CHECK(bleu({.eos_token_id = 0}, {1, 2, 3, 4, 0, 9, 9}, {1, 2, 3, 4, 0}) == 1);
  CHECK(bleu({.n_gram = 1}, {1, 2}, {1, 2, 3, 4}) == doctest::Approx(std::exp(-1.)));
  CHECK(bleu({}, {1, 2, 3}, {1, 2, 3}) == 0);  // shorter than four tokens, as in torchmetrics
}

TEST_CASE("A sample counts as an exact match by the places that are not ignored, and not at all if it has none") {
  ExactMatch metric({.ignore_index = -100});
  metric.update(at::tensor({1, 2, 3, 1, 2, 3, 9, 9, 9}, at::kLong).view({3, 3}),
                {{"target", at::tensor({1, 2, -100, 1, 9, -100, -100, -100, -100}, at::kLong).view({3, 3})}});
  CHECK(value(metric) == 0.5);
}

TEST_CASE("A wrong shape or option is told with the shapes and the option") {
  const at::Tensor four = at::zeros({4}), classes = at::zeros({4}, at::kLong);
  const auto error = [](auto&& metric, const at::Tensor& output, const at::Tensor& target) {
    return error_of([&] { metric.update(output, {{"target", target}}); });
  };
  CHECK(error(BinaryAUROC(), at::zeros({4, 2}), classes) ==
        "BinaryAUROC: outputs and targets must have one shape, got [4, 2] and [4]");
  CHECK(error(BinaryAUROC(), four, classes + 2) ==
        "BinaryAUROC: targets must be 0 (no) or 1 (yes), and some are neither; of probabilities give target.gt(0.5)");
  CHECK(
      error(MulticlassAUROC({.num_classes = 3}), at::zeros({4, 2}), classes) ==
      "MulticlassAUROC: expected outputs [N, 3, ...] (num_classes is 3) and targets [N, ...] (classes), got [4, 2] and "
      "[4]");
  CHECK(
      error(MultilabelRecall({.num_labels = 3}), at::zeros({4, 2}), at::zeros({4, 2})) ==
      "MultilabelRecall: outputs and targets must have one shape [N, 3, ...] (num_labels is 3), got [4, 2] and [4, 2]");
  CHECK(
      error(ConfusionMatrix({.num_classes = 3}), at::zeros({4, 2}), classes) ==
      "ConfusionMatrix: expected outputs [N, 3, ...] (num_classes is 3) and targets [N, ...] (classes), got [4, 2] and "
      "[4]");
  CHECK(error(TopKAccuracy(), at::zeros({4, 3}), classes) == "TopKAccuracy: k is 5, and the outputs have 3 classes");
  CHECK(error(R2Score(), at::zeros({4, 1}), four) ==
        "R2Score: outputs and targets must have one shape, got [4, 1] and [4]");
  CHECK(error(PearsonCorrCoef({.output_names = {"a"}}), at::zeros({4, 2}), at::zeros({4, 2})) ==
        "PearsonCorrCoef: output_names has 1 names, and the outputs [4, 2] are 2 for each sample");
  CHECK(error(BLEUScore(), four, classes) ==
        "BLEUScore: expected token ids [N, T] or logits [N, T, vocabulary], and targets [N, T] or, for several "
        "references, [N, R, T], got [4] of type Float and [4]");
  CHECK_THROWS_WITH_AS(MulticlassAUROC({.num_classes = 1}), doctest::Contains("num_classes must be >= 2, got 1"),
                       ConfigError);
  CHECK_THROWS_WITH_AS(MulticlassAUROC({.num_classes = 3, .average = Average::MICRO}),
                       doctest::Contains("average must be macro or weighted, got micro"), ConfigError);
  CHECK_THROWS_WITH_AS(BinaryAUROC({.thresholds = 1}), doctest::Contains("thresholds must be 0 (exact) or >= 2, got 1"),
                       ConfigError);
  CHECK_THROWS_WITH_AS(MulticlassAccuracy({.num_classes = 3, .class_names = {"a", "b"}}),
                       doctest::Contains("class_names must have a name for each of the 3 classes, got 2"), ConfigError);
  CHECK_THROWS_WITH_AS(MulticlassAccuracy({.num_classes = 2, .class_names = {"a", "a"}}),
                       doctest::Contains("must differ"), ConfigError);
  CHECK_THROWS_WITH_AS(MulticlassAccuracy({.per_class = true}), doctest::Contains("num_classes must be >= 1"),
                       ConfigError);
  CHECK_THROWS_WITH_AS(BinaryFBetaScore({.beta = 0}), doctest::Contains("beta must be > 0, got 0"), ConfigError);
}

}  // namespace
}  // namespace composer::test::several_values_test
