#include "composer/core/metric.h"

namespace composer {

Metric::~Metric() = default;
void Metric::visit_sums(const VisitSum&) {}

Metrics Metrics::fresh() const {
  Metrics copy;
  for (const auto& metric : list_) copy.add(metric->fresh());
  return copy;
}

}  // namespace composer
