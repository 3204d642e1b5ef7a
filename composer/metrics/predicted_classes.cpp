#include "composer/metrics/predicted_classes.h"

#include <ATen/TensorOperators.h>

#include "composer/core/error.h"
#include "composer/util/loss.h"

namespace composer::metrics {

PredictedClasses predicted_classes(const std::string& name, const at::Tensor& logits, const at::Tensor& target,
                                   std::int64_t num_classes, std::int64_t ignore_index) {
  const at::Tensor classes = target.to(at::kLong);
  if (logits.dim() != classes.dim() + 1 || logits.size(1) != num_classes)
    throw DataError(name, ": expected outputs [N, ", num_classes, ", ...] and targets [N, ...], got ", logits.sizes(),
                    " and ", classes.sizes());
  check_classes(classes, num_classes, ignore_index);
  return {.target = classes, .predicted = logits.argmax(1), .valid = not_ignored(classes, ignore_index)};
}

}  // namespace composer::metrics
