#include "composer/core/metric.h"

#include "composer/core/metric_parts.h"
#include "composer/core/state_dict.h"

namespace composer {

Metric::~Metric() = default;
void Metric::visit_sums(const VisitSum&) {}
StateDict Metric::local_hparams() const { return {}; }

HasSeveralValues::~HasSeveralValues() = default;
KeepsRows::~KeepsRows() = default;
LogsContent::~LogsContent() = default;

Metrics Metrics::fresh() const {
  Metrics copy;
  for (const auto& metric : list_) copy.add(metric->fresh());
  return copy;
}

}  // namespace composer
