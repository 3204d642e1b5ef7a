#pragma once
#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>

#include "composer/core/error.h"

namespace composer::metrics {

// The classes of a segmentation, each [N, ...]: the target classes, the classes with the largest logit, and where
// targets count.
struct PredictedClasses {
  at::Tensor target, predicted, valid;
};

// Targets as int64. Throws DataError that begins with the metric's `name` for floating-point targets, which are not
// classes.
at::Tensor whole_classes(const std::string& name, const at::Tensor& target);

// From logits [N, num_classes, ...] and targets [N, ...]. Throws DataError that begins with the metric's `name` for
// other shapes, for targets that are not whole numbers, and for classes out of range that are not `ignore_index`.
PredictedClasses predicted_classes(const std::string& name, const at::Tensor& logits, const at::Tensor& target,
                                   std::int64_t num_classes, std::int64_t ignore_index);

// Returns what `compute` returns. If it throws a DataError, puts the metric's `name` at its beginning.
template <class Compute>
auto naming(const std::string& name, const Compute& compute) {
  try {
    return compute();
  } catch (const DataError& error) {
    throw DataError(name, ": ", error.what());
  }
}

}  // namespace composer::metrics
