#pragma once
#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>

#include "composer/core/export.h"
#include "composer/core/tensors.h"

namespace composer::metrics {

// A running sum on the device of the summands: whole numbers in int64, others in float64. It begins with the first
// summand, whose shape and device all others must have; reset() sets it to zero in place.
class COMPOSER_EXPORT Sum {
 public:
  void add(const at::Tensor& summand);
  void add(std::int64_t summand, at::Device device);
  void reset();

  // The sum in float64; NaN, on the host, before the first summand.
  at::Tensor value() const;

  // For Metric::visit_sums(); undefined before the first summand.
  at::Tensor& tensor() { return sum_; }

 private:
  at::Tensor sum_;
};

// How often each class occurs where `valid`, or everywhere if `valid` is undefined. [num_classes]
COMPOSER_EXPORT at::Tensor count_by_class(const at::Tensor& classes, const at::Tensor& valid, std::int64_t num_classes);

// The output with this name, or the only one if the name is empty.
COMPOSER_EXPORT const at::Tensor& pick(const Outputs& outputs, const std::string& name);

}  // namespace composer::metrics
