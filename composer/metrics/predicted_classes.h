#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

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

// Outputs as probabilities: by `to_probabilities` if `logits`, or if any is outside of 0 to 1, as in torchmetrics. On
// the host, the first guess is warned of.
class ProbabilitiesOf {
 public:
  template <class ToProbabilities>
  at::Tensor operator()(const std::string& name, const at::Tensor& output, bool logits,
                        const ToProbabilities& to_probabilities) {
    if (logits) return to_probabilities(output);
    const at::Tensor outside = is_outside(name, output);
    return to_probabilities(output).where(outside, output);
  }

 private:
  at::Tensor is_outside(const std::string& name, const at::Tensor& output);  // reads values only on the host

  bool has_warned_ = false;
};

// Throws DataError unless both have one shape, which is [N, labels, ...] if `labels` > 0.
void check_one_shape(const std::string& name, const at::Tensor& output, const at::Tensor& target, std::int64_t labels);

// Throws DataError, which ends with `remedy`, if a target on the host is neither 0 nor 1, nor `ignore_index`.
void check_yes_or_no(const std::string& name, const at::Tensor& target, std::optional<std::int64_t> ignore_index,
                     const char* remedy);

// Names of the values of `count` classes: `given`, or their numbers. Throws ConfigError if the given ones are not as
// many, are empty, or are not unique.
std::vector<std::string> names_of_classes(const std::string& metric, const std::vector<std::string>& given,
                                          std::int64_t count);

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
