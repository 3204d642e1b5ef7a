#include "composer/metrics/registry.h"

#include "composer/metrics/binary.h"
#include "composer/metrics/classification.h"
#include "composer/metrics/language.h"
#include "composer/metrics/loss_metrics.h"
#include "composer/metrics/miou.h"
#include "composer/metrics/regression.h"

namespace composer::metrics {
namespace {

// `own` and what every metric has.
template <class O>
std::vector<Option<O>> with_names(std::vector<Option<O>> own) {
  own.push_back(option("name", &O::name));
  own.push_back(option("output", &O::output));
  own.push_back(option("target", &O::target));
  return own;
}

template <class M>
Entry<Metrics> multiclass(std::string name, std::string summary) {
  using O = MulticlassOptions;
  const std::vector<std::pair<std::string, Average>> averages{
      {"micro", Average::MICRO}, {"macro", Average::MACRO}, {"weighted", Average::WEIGHTED}};
  return entry<M, O>(
      std::move(name), std::move(summary),
      with_names<O>({option("num_classes", &O::num_classes).refuses({"-1"}), option("top_k", &O::top_k).refuses({"0"}),
                     option("average", &O::average, averages).refuses({"none", "macro"}),
                     option("ignore_index", &O::ignore_index).refuses({"x"})}));
}

template <class M>
Entry<Metrics> language(std::string name, std::string summary) {
  using O = LanguageOptions;
  return entry<M, O>(std::move(name), std::move(summary),
                     with_names<O>({option("ignore_index", &O::ignore_index).refuses({"x"})}));
}

Entry<Metrics> binary_accuracy() {
  using O = BinaryAccuracyOptions;
  return entry<BinaryAccuracy, O>("binary_accuracy", "Share of right answers to a yes-no question",
                                  with_names<O>({option("threshold", &O::threshold).refuses({"-0.1", "1.5"}),
                                                 option("logits", &O::logits).refuses({"1"})}));
}

Entry<Metrics> cross_entropy() {
  using O = CrossEntropyOptions;
  return entry<CrossEntropy, O>("cross_entropy", "Mean cross entropy of the targets",
                                with_names<O>({option("ignore_index", &O::ignore_index).refuses({"x"}),
                                               option("mean_of_batches", &O::mean_of_batches).refuses({"1"})}));
}

Entry<Metrics> miou() {
  using O = MIoUOptions;
  return entry<MIoU, O>("miou", "Intersection over union of segmentation maps, as the mean over classes",
                        with_names<O>({option("num_classes", &O::num_classes).example("4").refuses({"0"}),
                                       option("ignore_index", &O::ignore_index).refuses({"x"})}));
}

}  // namespace

const Registry<Metrics>& registry() {
  static const Registry<Metrics> entries = {
      binary_accuracy(),
      entry<BinaryF1Score, BinaryF1ScoreOptions>("binary_f1_score", "Harmonic mean of precision and recall of class 1",
                                                 with_names<BinaryF1ScoreOptions>({})),
      cross_entropy(),
      language<LanguageCrossEntropy>("language_cross_entropy", "Mean cross entropy of tokens"),
      language<LanguagePerplexity>("language_perplexity", "Perplexity of tokens"),
      language<MaskedAccuracy>("masked_accuracy", "Share of tokens that were predicted"),
      entry<MeanAbsoluteError, RegressionOptions>("mean_absolute_error", "Mean absolute error",
                                                  with_names<RegressionOptions>({})),
      entry<MeanSquaredError, RegressionOptions>("mean_squared_error", "Mean squared error",
                                                 with_names<RegressionOptions>({})),
      miou(),
      multiclass<MulticlassAccuracy>("multiclass_accuracy", "Share of targets that were predicted"),
      multiclass<MulticlassF1Score>("multiclass_f1_score", "Harmonic mean of precision and recall"),
      multiclass<MulticlassPrecision>("multiclass_precision", "Share of predictions that were right"),
      multiclass<MulticlassRecall>("multiclass_recall", "Share of targets that were predicted, by another name"),
  };
  return entries;
}

}  // namespace composer::metrics
