#pragma once
#include "composer/core/export.h"
#include "composer/core/metric.h"
#include "composer/metrics/sum.h"

namespace composer::metrics {

// A metric that is the quotient of two sums, which deriving classes add to in update().
class COMPOSER_EXPORT Ratio : public Metric {
 public:
  ~Ratio() override;
  at::Tensor compute() const override { return over_.value().div(under_.value()); }
  void reset() override;
  void visit_sums(const VisitSum& visit) override;

 protected:
  Sum over_, under_;
};

}  // namespace composer::metrics
