#include "composer/metrics/ratio.h"

namespace composer::metrics {

Ratio::~Ratio() = default;

void Ratio::reset() {
  over_.reset();
  under_.reset();
}

void Ratio::visit_sums(const VisitSum& visit) {
  visit("over", over_.tensor());
  visit("under", under_.tensor());
}

}  // namespace composer::metrics
