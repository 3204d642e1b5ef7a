#include "composer/metrics/predicted_classes.h"

#include <ATen/TensorOperators.h>

#include "composer/core/error.h"
#include "composer/util/loss.h"

namespace composer::metrics {

at::Tensor whole_classes(const std::string& name, const at::Tensor& target) {
  if (!at::isIntegralType(target.scalar_type(), /*includeBool=*/true))
    throw DataError(name, ": classes must be whole numbers, got a target of type ", target.scalar_type(),
                    "; give target.to(at::kLong) if its numbers are classes");
  return target.to(at::kLong);
}

PredictedClasses predicted_classes(const std::string& name, const at::Tensor& logits, const at::Tensor& target,
                                   std::int64_t num_classes, std::int64_t ignore_index) {
  if (logits.dim() != target.dim() + 1 || logits.size(1) != num_classes)
    throw DataError(name, ": expected outputs [N, ", num_classes, ", ...] and targets [N, ...], got ", logits.sizes(),
                    " and ", target.sizes());
  const at::Tensor classes = whole_classes(name, target);
  check_classes(classes, num_classes, ignore_index, name);
  return {.target = classes, .predicted = logits.argmax(1), .valid = not_ignored(classes, ignore_index)};
}

}  // namespace composer::metrics
