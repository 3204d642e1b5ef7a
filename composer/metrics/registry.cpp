#include "composer/metrics/registry.h"

namespace composer::metrics {

// Each entry is defined beside its class.
namespace entries {
Entry<Metrics> binary_accuracy();
Entry<Metrics> binary_auroc();
Entry<Metrics> binary_average_precision();
Entry<Metrics> binary_f1_score();
Entry<Metrics> binary_f_beta_score();
Entry<Metrics> binary_precision();
Entry<Metrics> binary_recall();
Entry<Metrics> binary_specificity();
Entry<Metrics> bleu_score();
Entry<Metrics> confusion_matrix();
Entry<Metrics> cross_entropy();
Entry<Metrics> dice();
Entry<Metrics> exact_match();
Entry<Metrics> language_cross_entropy();
Entry<Metrics> language_perplexity();
Entry<Metrics> masked_accuracy();
Entry<Metrics> mean_absolute_error();
Entry<Metrics> mean_absolute_percentage_error();
Entry<Metrics> mean_squared_error();
Entry<Metrics> miou();
Entry<Metrics> multiclass_accuracy();
Entry<Metrics> multiclass_auroc();
Entry<Metrics> multiclass_average_precision();
Entry<Metrics> multiclass_f1_score();
Entry<Metrics> multiclass_f_beta_score();
Entry<Metrics> multiclass_precision();
Entry<Metrics> multiclass_recall();
Entry<Metrics> multiclass_specificity();
Entry<Metrics> multilabel_accuracy();
Entry<Metrics> multilabel_auroc();
Entry<Metrics> multilabel_average_precision();
Entry<Metrics> multilabel_exact_match();
Entry<Metrics> multilabel_f_beta_score();
Entry<Metrics> multilabel_precision();
Entry<Metrics> multilabel_recall();
Entry<Metrics> multilabel_specificity();
Entry<Metrics> pearson_corr_coef();
Entry<Metrics> r2_score();
Entry<Metrics> root_mean_squared_error();
Entry<Metrics> spearman_corr_coef();
Entry<Metrics> symmetric_mean_absolute_percentage_error();
Entry<Metrics> top_k_accuracy();
}  // namespace entries

const Registry<Metrics>& registry() {
  static const Registry<Metrics> entries = {
      entries::binary_accuracy(),
      entries::binary_auroc(),
      entries::binary_average_precision(),
      entries::binary_f1_score(),
      entries::binary_f_beta_score(),
      entries::binary_precision(),
      entries::binary_recall(),
      entries::binary_specificity(),
      entries::bleu_score(),
      entries::confusion_matrix(),
      entries::cross_entropy(),
      entries::dice(),
      entries::exact_match(),
      entries::language_cross_entropy(),
      entries::language_perplexity(),
      entries::masked_accuracy(),
      entries::mean_absolute_error(),
      entries::mean_absolute_percentage_error(),
      entries::mean_squared_error(),
      entries::miou(),
      entries::multiclass_accuracy(),
      entries::multiclass_auroc(),
      entries::multiclass_average_precision(),
      entries::multiclass_f1_score(),
      entries::multiclass_f_beta_score(),
      entries::multiclass_precision(),
      entries::multiclass_recall(),
      entries::multiclass_specificity(),
      entries::multilabel_accuracy(),
      entries::multilabel_auroc(),
      entries::multilabel_average_precision(),
      entries::multilabel_exact_match(),
      entries::multilabel_f_beta_score(),
      entries::multilabel_precision(),
      entries::multilabel_recall(),
      entries::multilabel_specificity(),
      entries::pearson_corr_coef(),
      entries::r2_score(),
      entries::root_mean_squared_error(),
      entries::spearman_corr_coef(),
      entries::symmetric_mean_absolute_percentage_error(),
      entries::top_k_accuracy(),
  };
  return entries;
}

}  // namespace composer::metrics
