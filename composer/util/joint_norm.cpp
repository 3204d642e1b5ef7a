#include "composer/util/joint_norm.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>

namespace composer {

at::Tensor joint_norm(const std::vector<at::Tensor>& tensors, std::optional<at::ScalarType> type) {
  std::vector<at::Tensor> values;
  values.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) values.push_back(tensor.is_sparse() ? tensor.coalesce()._values() : tensor);
  return at::linalg_vector_norm(at::stack(at::_foreach_norm(values, 2, type)), 2);
}

}  // namespace composer
