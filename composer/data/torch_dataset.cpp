#include "composer/data/torch_dataset.h"

#include <ATen/ops/scalar_tensor.h>

namespace composer::data::detail {

at::Tensor scalar_of(double value) { return at::scalar_tensor(value, at::kFloat); }
at::Tensor scalar_of(std::int64_t value) { return at::scalar_tensor(value, at::kLong); }

}  // namespace composer::data::detail
