#include "composer/metrics/registry.h"

namespace composer::metrics {

// Each entry is defined beside its class.
namespace entries {
Entry<Metrics> binary_accuracy();
Entry<Metrics> binary_f1_score();
Entry<Metrics> cross_entropy();
Entry<Metrics> dice();
Entry<Metrics> language_cross_entropy();
Entry<Metrics> language_perplexity();
Entry<Metrics> masked_accuracy();
Entry<Metrics> mean_absolute_error();
Entry<Metrics> mean_squared_error();
Entry<Metrics> miou();
Entry<Metrics> multiclass_accuracy();
Entry<Metrics> multiclass_f1_score();
Entry<Metrics> multiclass_precision();
Entry<Metrics> multiclass_recall();
}  // namespace entries

const Registry<Metrics>& registry() {
  static const Registry<Metrics> entries = {
      entries::binary_accuracy(),        entries::binary_f1_score(),
      entries::cross_entropy(),          entries::dice(),
      entries::language_cross_entropy(), entries::language_perplexity(),
      entries::masked_accuracy(),        entries::mean_absolute_error(),
      entries::mean_squared_error(),     entries::miou(),
      entries::multiclass_accuracy(),    entries::multiclass_f1_score(),
      entries::multiclass_precision(),   entries::multiclass_recall(),
  };
  return entries;
}

}  // namespace composer::metrics
