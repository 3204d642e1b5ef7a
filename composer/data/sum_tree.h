#pragma once
#include <cstddef>
#include <vector>

#include "composer/core/export.h"

namespace composer::data::detail {

// Numbers >= 0 that are changed and drawn in proportion to their size, in logarithmic time. Its sums depend on the
// numbers alone, not on the order of changes.
class COMPOSER_EXPORT SumTree {
 public:
  explicit SumTree(std::size_t size);  // all 0

  double operator[](std::size_t i) const { return sums_[leaves_ + i]; }
  void set(std::size_t i, double value);
  double total() const { return sums_[1]; }
  // The first number with which the sum exceeds this, 0 <= sum < total(). Never one that is 0, unless all are.
  std::size_t find(double sum) const;

 private:
  std::size_t leaves_ = 1;
  std::vector<double> sums_;  // of node i: that of its children 2i and 2i + 1
};

}  // namespace composer::data::detail
