#include "composer/metrics/registry.h"

#include "composer/metrics/classification.h"
#include "composer/metrics/loss_metrics.h"

namespace composer::metrics {
namespace {

template <class T>
Entry<Metrics> multiclass(std::string name, std::string summary) {
  using O = MulticlassOptions;
  return entry<T, O>(std::move(name), std::move(summary),
                     {option("num_classes", &O::num_classes).refuses({"-1"}), option("top_k", &O::top_k).refuses({"0"}),
                      option("average", &O::average,
                             {{"micro", Average::MICRO}, {"macro", Average::MACRO}, {"weighted", Average::WEIGHTED}})
                          .refuses({"none"}),
                      option("ignore_index", &O::ignore_index).refuses({"x"}), option("name", &O::name),
                      option("output", &O::output), option("target", &O::target)});
}

Entry<Metrics> cross_entropy() {
  using O = CrossEntropyOptions;
  return entry<CrossEntropy, O>(
      "cross_entropy", "Mean cross entropy of the targets",
      {option("ignore_index", &O::ignore_index), option("mean_of_batches", &O::mean_of_batches),
       option("name", &O::name).refuses({""}), option("output", &O::output), option("target", &O::target)});
}

}  // namespace

const Registry<Metrics>& registry() {
  static const Registry<Metrics> entries = {
      cross_entropy(),
      multiclass<MulticlassAccuracy>("multiclass_accuracy", "Share of targets that were predicted"),
      multiclass<MulticlassF1Score>("multiclass_f1_score", "Harmonic mean of precision and recall"),
      multiclass<MulticlassPrecision>("multiclass_precision", "Share of predictions that were right"),
      multiclass<MulticlassRecall>("multiclass_recall", "Share of targets that were predicted, by another name"),
  };
  return entries;
}

}  // namespace composer::metrics
