#include "composer/metrics/ratio.h"

namespace composer::metrics {

Ratio::~Ratio() = default;

void Ratio::reset() {
  over_.reset();
  under_.reset();
}

}  // namespace composer::metrics
