#include "composer/metrics/registry.h"

namespace composer::metrics {

const Registry<Metrics>& registry() {
  static const Registry<Metrics> entries = {};
  return entries;
}

}  // namespace composer::metrics
