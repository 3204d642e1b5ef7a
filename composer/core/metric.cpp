#include "composer/core/metric.h"

namespace composer {

Metric::~Metric() = default;

Metrics Metrics::fresh() const {
  Metrics copy;
  for (const auto& metric : list_) copy.add(metric->fresh());
  return copy;
}

}  // namespace composer
