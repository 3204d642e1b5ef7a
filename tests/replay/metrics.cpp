// metrics.json: metrics over batches, losses, one-hot targets, and which metrics an evaluator keeps.
#include <cmath>
#include <map>

#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>

#include "composer/core/error.h"
#include "composer/data/in_memory.h"
#include "composer/metrics/binary.h"
#include "composer/metrics/classification.h"
#include "composer/metrics/dice.h"
#include "composer/metrics/language.h"
#include "composer/metrics/loss_metrics.h"
#include "composer/metrics/miou.h"
#include "composer/metrics/regression.h"
#include "composer/models/classifier.h"
#include "composer/trainer/trainer.h"
#include "composer/util/dice_loss.h"
#include "composer/util/loss.h"
#include "tests/replay/errors.h"
#include "tests/replay/recorded.h"
#include "tests/replay/replay.h"

namespace composer::replay {
namespace {

using namespace composer::metrics;

constexpr Tolerance kFloat32{1e-5, 1e-6};

at::Tensor find(const Recorded& tensors, const std::string& name) {  // undefined if there is none
  return tensors.contains(name) ? tensors.at(name) : at::Tensor();
}
Outputs predictions_of(const Recorded& tensors, std::size_t batch) {
  return tensors.at("batch" + std::to_string(batch) + ".preds");
}
Batch batch_of(const Recorded& tensors, std::size_t batch) {
  return {{"target", tensors.at("batch" + std::to_string(batch) + ".target")}};
}

Json nested(const at::Tensor& tensor) {
  if (tensor.dim() == 0) return number(tensor.item<double>());
  Json list = Json::array();
  for (const at::Tensor& part : tensor.unbind()) list.push_back(nested(part));
  return list;
}

// ---- metrics

// Composer's figure of Dice is rounded.
Json rounded(Json value) {
  if (value.is_number()) return std::round(value.get<double>() * 100) / 100;
  for (Json& one : value) one = rounded(one);
  return value;
}

template <class Options>
void set_ignore_index(Options& options, const Json& arguments) {
  if (arguments.contains("ignore_index")) options.ignore_index = arguments["ignore_index"];
}

template <class M>
std::shared_ptr<Metric> multiclass(const Json& arguments) {
  static const std::map<std::string, Average> averages{{"micro", Average::MICRO},
                                                       {"macro", Average::MACRO},
                                                       {"weighted", Average::WEIGHTED},
                                                       {"none", Average::MACRO}};  // and per_class()
  MulticlassOptions options{.num_classes = arguments.at("num_classes"),
                            .top_k = arguments.value("top_k", std::int64_t{1}),
                            .average = averages.at(arguments.at("average"))};
  set_ignore_index(options, arguments);
  return std::make_shared<M>(options);
}

template <class M, class Options>
std::shared_ptr<Metric> with_ignore_index(const Json& arguments) {
  Options options;
  set_ignore_index(options, arguments);
  return std::make_shared<M>(options);
}

template <class M>
std::shared_ptr<Metric> plain(const Json&) {
  return std::make_shared<M>();
}

std::shared_ptr<Metric> loss_metric(const Json& arguments, bool mean_of_batches) {
  if (arguments.at("loss_function") != "MSELoss") throw Unsupported{"loss_function of LossMetric"};
  return std::make_shared<LossMetric>(
      LossMetricOptions{.loss_function = [](const at::Tensor& x, const at::Tensor& y) { return at::mse_loss(x, y); },
                        .mean_of_batches = mean_of_batches});
}

std::shared_ptr<Metric> make_metric(const Json& c, bool mean_of_batches) {
  using Make = std::shared_ptr<Metric> (*)(const Json&);
  static const std::map<std::string, Make> makers = {
      {"MulticlassAccuracy", multiclass<MulticlassAccuracy>},
      {"MulticlassF1Score", multiclass<MulticlassF1Score>},
      {"MulticlassPrecision", multiclass<MulticlassPrecision>},
      {"MulticlassRecall", multiclass<MulticlassRecall>},
      {"BinaryF1Score", plain<BinaryF1Score>},
      {"MeanSquaredError", plain<MeanSquaredError>},
      {"MeanAbsoluteError", plain<MeanAbsoluteError>},
      {"BinaryAccuracy",
       [](const Json& arguments) -> std::shared_ptr<Metric> {
         return std::make_shared<BinaryAccuracy>(BinaryAccuracyOptions{.threshold = arguments.value("threshold", 0.5)});
       }},
      {"LanguageCrossEntropy", with_ignore_index<LanguageCrossEntropy, LanguageOptions>},
      {"LanguagePerplexity", with_ignore_index<LanguagePerplexity, LanguageOptions>},
      {"MaskedAccuracy", with_ignore_index<MaskedAccuracy, LanguageOptions>},
      {"MIoU",
       [](const Json& arguments) -> std::shared_ptr<Metric> {
         MIoUOptions options{.num_classes = arguments.at("num_classes")};
         set_ignore_index(options, arguments);
         return std::make_shared<MIoU>(options);
       }},
  };
  const std::string name = c["metric"];
  const Json& arguments = c["kwargs"];
  if (name == "CrossEntropy") {
    CrossEntropyOptions options{.mean_of_batches = mean_of_batches};
    set_ignore_index(options, arguments);
    return std::make_shared<CrossEntropy>(options);
  }
  if (name == "LossMetric") return loss_metric(arguments, mean_of_batches);
  if (name == "Dice")
    return std::make_shared<Dice>(DiceOptions{.num_classes = 1 + arguments.at("num_classes").get<std::int64_t>(),
                                              .mean_of_batches = mean_of_batches});
  const auto maker = makers.find(name);
  if (maker == makers.end()) throw Unsupported{"metric " + name};
  return maker->second(arguments);
}

Json replay_metric(const Json& c, const Recorded& tensors, bool mean_of_batches) {
  const bool by_class = c["kwargs"].value("average", "") == "none";
  const auto metric = make_metric(c, mean_of_batches);
  return result_of(c, [&] {
    Json values = Json::array();
    for (std::size_t i = 0; i < c["num_batches"]; ++i) {
      metric->update(predictions_of(tensors, i), batch_of(tensors, i));
      values.push_back(nested(by_class ? dynamic_cast<MulticlassMetric&>(*metric).per_class() : metric->compute()));
    }
    return Json{{"values_after_each_batch", values}, {"error", nullptr}};
  });
}

bool is_dice(const Json& c) { return c.value("metric", "") == "Dice"; }

bool averages_batches(const Json& c) {
  return is_dice(c) || c["kind"] == "composer_classifier_metrics" || c.value("metric", "") == "CrossEntropy" ||
         c.value("metric", "") == "LossMetric";
}

// The mean over the classes that occur.
double dice_of_all(const at::Tensor& predicted, const at::Tensor& target, std::int64_t classes) {
  double sum = 0, occurring = 0;
  for (std::int64_t i = 1; i < classes; ++i) {
    const at::Tensor found = predicted.eq(i), there = target.eq(i);
    const double both = (found.sum() + there.sum()).item<double>();
    if (both == 0) continue;
    sum += 2 * found.logical_and(there).sum().item<double>() / both;
    ++occurring;
  }
  return 100 * sum / occurring;
}

// What the mean over all samples of the first batches is, by libtorch's own losses.
double mean_over_samples(const Json& c, const Recorded& tensors, std::size_t batches) {
  std::vector<at::Tensor> predictions, targets;
  for (std::size_t i = 0; i < batches; ++i) {
    predictions.push_back(predictions_of(tensors, i).only());
    targets.push_back(batch_of(tensors, i)["target"]);
  }
  const at::Tensor x = at::cat(predictions), y = at::cat(targets);
  if (c.value("metric", "") == "LossMetric") return at::mse_loss(x, y).item<double>();
  if (is_dice(c)) return dice_of_all(x.argmax(1), y, x.size(1));
  const std::int64_t ignored = c.value("kwargs", Json::object()).value("ignore_index", std::int64_t{-100});
  return at::cross_entropy_loss(x, y, {}, at::Reduction::Mean, ignored).item<double>();
}

// Without a context for the page of differences.
Rule samples_weigh_alike(const Context* context) {
  return {.name = "samples_weigh_alike",
          .applies_to = "`CrossEntropy`, `LossMetric` and `Dice` over batches of different sizes",
          .composer_does = "takes the mean of the batches' means, so a sample in a small last batch weighs more",
          .we_do = "takes the mean over all samples; the option `mean_of_batches` gives Composer's figure",
          .why = "the figure must not depend on the batch size",
          .matches = averages_batches,
          .ours = [context](Json& expected, const Json& c) {
            const Recorded tensors(c, *context);
            if (c["kind"] == "composer_classifier_metrics") {
              expected["values"]["eval"]["CrossEntropy"] = mean_over_samples(c, tensors, c["num_batches"]);
              return;
            }
            Json& values = expected["values_after_each_batch"];
            for (std::size_t i = 0; i < values.size(); ++i) values[i] = mean_over_samples(c, tensors, i + 1);
          }};
}

Outcome run_metric(const Json& c, const Context& context) {
  const Recorded tensors(c, context);
  Json recorded = without_message({{"error", c["error"]}});
  if (c["error"].is_null()) recorded["values_after_each_batch"] = c["values_after_each_batch"];
  if (averages_batches(c)) {
    Json by_batches = replay_metric(c, tensors, true);
    if (is_dice(c) && by_batches["error"].is_null())
      by_batches["values_after_each_batch"] = rounded(by_batches["values_after_each_batch"]);
    const Outcome with_option = judge(c, recorded, by_batches, {}, kFloat32);
    if (with_option.verdict != Verdict::EQUAL) return with_option;
  }
  return judge(c, recorded, replay_metric(c, tensors, false), {samples_weigh_alike(&context)}, kFloat32);
}

Outcome run_classifier_metrics(const Json& c, const Context& context) {
  const Recorded tensors(c, context);
  const std::int64_t classes = c["num_classes"];
  models::Classifier model(torch::nn::Linear(1, classes), {.num_classes = classes});
  Json values;
  for (bool is_train : {true, false}) {
    Json& group = values[is_train ? "train" : "eval"];
    for (const auto& metric : model.get_metrics(is_train)) {
      for (std::size_t i = 0; i < c["num_batches"]; ++i)
        model.update_metric(batch_of(tensors, i), predictions_of(tensors, i), *metric);
      group[metric->name()] = nested(metric->compute());
    }
  }
  return judge(c, {{"values", c["values"]}}, {{"values", values}}, {samples_weigh_alike(&context)}, kFloat32);
}

// ---- which metrics an evaluator keeps

Rule names_match() {
  return {.name = "metric_names_match_something",
          .applies_to = "A `metric_names` of an `Evaluator` that matches no metric",
          .composer_does = "evaluates without metrics",
          .we_do = "`ConfigError` that lists the metrics",
          .why = "a name that is spelled wrong would cost an evaluation and tell nothing",
          .matches =
              [](const Json& c) {
                return c["kind"] == "metric_filter" && c["kept"].empty() && c["metric_names"].is_array() &&
                       !c["metric_names"].empty();
              },
          .ours = [](Json& expected, const Json&) { expected["error"] = "ConfigError"; }};
}

Outcome run_filter(const Json& c) {
  Metrics available;
  for (const Json& name : c["available"])
    available.add(LossMetric({.loss_function = [](const at::Tensor& x, const at::Tensor&) { return x.sum(); },
                              .name = name.get<std::string>()}));
  Trainer trainer(
      {.model = std::make_shared<models::Classifier>(
           torch::nn::Linear(1, 2), models::ClassifierOptions{.train_metrics = Metrics(), .val_metrics = available})});
  Evaluator evaluator{.label = "eval",
                      .dataloader = data::in_memory({{"input", at::zeros({1, 1})}, {"target", at::zeros(1, at::kLong)}},
                                                    {.batch_size = 1})};
  if (!c["metric_names"].is_null()) evaluator.metric_names = c["metric_names"].get<std::vector<std::string>>();
  Json kept = Json::array(), error;
  try {
    trainer.eval({.eval_dataloader = evaluator});
  } catch (const ConfigError&) {
    error = "ConfigError";
  }
  for (const Json& name : c["available"])
    if (trainer.state().metrics.find("eval", name.get<std::string>())) kept.push_back(name);
  return judge(c, {{"kept", c["kept"]}, {"error", nullptr}}, {{"kept", kept}, {"error", error}}, {names_match()});
}

// ---- losses

Rule nothing_is_read() {
  return {.name = "losses_read_nothing_on_the_host",
          .applies_to = "`soft_cross_entropy` with probabilities that do not sum to 1, or with an `ignore_index`",
          .composer_does = "warns at every step; raises `ValueError` if no target has any probability",
          .we_do = "says nothing; the loss is NaN if no target has any probability",
          .why = "to know it, the host would wait for the device at every step",
          .matches =
              [](const Json& c) {
                return c["kind"] == "loss" && c["function"] == "soft_cross_entropy" &&
                       (!c["warnings"].empty() ||
                        (!c["error"].is_null() &&
                         c["error"].value("message", "").find("nonzero probability") != std::string::npos));
              },
          .ours =
              [](Json& expected, const Json& c) {
                expected["warnings"] = Json::array();
                if (c["error"].is_null()) return;
                expected["error"] = nullptr;
                expected["out"] = "nan";
              }};
}

const std::map<std::string, Reduction> kReductions{
    {"none", Reduction::NONE}, {"mean", Reduction::MEAN}, {"sum", Reduction::SUM}};

bool has_known_reduction(const Json& arguments) { return kReductions.contains(arguments.value("reduction", "mean")); }

Rule reductions_are_an_enum() {
  return {.name = "reductions_are_an_enum",
          .applies_to = "The name of a reduction that does not exist",
          .composer_does = "Raises `ValueError` when the loss is computed.",
          .we_do = "Does not compile: a reduction is an `enum class`.",
          .why = "The compiler knows the types.",
          .matches =
              [](const Json& c) {
                return c["kind"] == "loss" && !has_known_reduction(c["kwargs"]) && !c["error"].is_null() &&
                       c["error"]["type"] == "ValueError";
              },
          .ours = [](Json& expected, const Json&) { expected["error"] = kDoesNotCompile["error"]; }};
}

bool has_one_activation(const Json& arguments) {
  return !(arguments.value("sigmoid", false) && arguments.value("softmax", false));
}

Rule activations_are_an_enum() {
  return {.name = "activations_are_an_enum",
          .applies_to = "`DiceLoss` with both `sigmoid` and `softmax`",
          .composer_does = "Raises `ValueError` in the constructor.",
          .we_do = "Does not compile: an activation is an `enum class`.",
          .why = "There is no way to say it.",
          .matches = [](const Json& c) { return c["kind"] == "loss" && !has_one_activation(c["kwargs"]); },
          .ours = [](Json& expected, const Json&) { expected["error"] = kDoesNotCompile["error"]; }};
}

at::Tensor loss_of(const Json& c, const Recorded& tensors) {
  const Json& arguments = c["kwargs"];
  const at::Tensor input = tensors.at("in.input"), target = tensors.at("in.target");
  const auto reduction = [&](Reduction otherwise) {
    if (!arguments.contains("reduction")) return otherwise;
    return kReductions.at(arguments["reduction"]);
  };
  if (c["function"] == "soft_cross_entropy") {
    SoftCrossEntropyOptions options{.weight = find(tensors, "in.weight")};
    set_ignore_index(options, arguments);
    options.reduction = reduction(options.reduction);
    return soft_cross_entropy(input, target, options);
  }
  if (c["function"] == "binary_cross_entropy_with_logits") {
    BinaryCrossEntropyOptions options{.weight = find(tensors, "in.weight"),
                                      .pos_weight = find(tensors, "in.pos_weight")};
    options.reduction = reduction(options.reduction);
    options.scale_by_batch_size = arguments.value("scale_by_batch_size", options.scale_by_batch_size);
    return composer::binary_cross_entropy_with_logits(input, target, options);
  }
  if (c["function"] == "DiceLoss") {
    const auto flag = [&](const char* name) { return arguments.value(name, false); };
    return dice_loss(input, target,
                     {.activation = flag("sigmoid")   ? DiceActivation::SIGMOID
                                    : flag("softmax") ? DiceActivation::SOFTMAX
                                                      : DiceActivation::NONE,
                      .squared_pred = flag("squared_pred"),
                      .jaccard = flag("jaccard"),
                      .batch = flag("batch"),
                      .ignore_absent_classes = flag("ignore_absent_classes"),
                      .reduction = reduction(Reduction::MEAN)});
  }
  throw Unsupported{"loss " + c["function"].get<std::string>()};
}

Outcome run_loss(const Json& c, const Context& context) {
  const Recorded tensors(c, context);
  const at::Tensor out = find(tensors, "out");
  Json recorded = without_message({{"error", c["error"]}});
  recorded["warnings"] = c["warnings"];
  if (out.defined()) recorded["out"] = nested(out);
  Json got = result_of(recorded, [&] {
    if (c["function"] == "soft_cross_entropy" && !has_known_reduction(c["kwargs"])) return kDoesNotCompile;
    if (!has_one_activation(c["kwargs"])) return kDoesNotCompile;
    return Json{{"out", nested(loss_of(c, tensors))}, {"error", nullptr}};
  });
  got["warnings"] = Json::array();
  const bool doubles = tensors.at("in.input").scalar_type() == at::kDouble;
  return judge(c, recorded, got, {nothing_is_read(), reductions_are_an_enum(), activations_are_an_enum()},
               doubles ? Tolerance{} : kFloat32);
}

Outcome run_one_hot(const Json& c, const Context& context) {
  const Recorded tensors(c, context);
  const at::Tensor logits = at::zeros(c["input_shape"].get<std::vector<std::int64_t>>()), out = find(tensors, "out");
  const at::Tensor target = tensors.at("in.target");
  const std::int64_t classes = c["num_classes"].is_null() ? 0 : c["num_classes"].get<std::int64_t>();
  Json recorded = without_message({{"error", c["error"]}});
  recorded["infer_target_type"] = c["infer_target_type"];
  if (out.defined()) recorded["out"] = nested(out);
  Json got = result_of(recorded, [&] {
    return Json{{"out", nested(ensure_targets_one_hot(logits, target, classes))}, {"error", nullptr}};
  });
  got["infer_target_type"] = target_kind(logits, target) == TargetKind::INDICES ? "indices" : "one_hot";
  return judge(c, recorded, got, {});
}

Outcome run_metrics(const Json& c, const Context& context) {
  const std::string kind = c["kind"];
  if (kind == "metric") return run_metric(c, context);
  if (kind == "composer_classifier_metrics") return run_classifier_metrics(c, context);
  if (kind == "metric_filter") return run_filter(c);
  if (kind == "loss") return run_loss(c, context);
  if (kind == "ensure_targets_one_hot") return run_one_hot(c, context);
  return unsupported("kind " + kind);
}

}  // namespace

Suite metrics_suite() {
  return {"metrics.json",
          "Metrics and losses",
          run_metrics,
          {samples_weigh_alike(nullptr), names_match(), nothing_is_read(), reductions_are_an_enum(),
           activations_are_an_enum()}};
}

}  // namespace composer::replay
