#include "composer/models/positions.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/ones_like.h>
#include <torch/csrc/jit/frontend/tracer.h>

namespace composer::models::detail {

at::Tensor first_rows(const at::Tensor& table, const at::Tensor& tokens) {
  if (!torch::jit::tracer::isTracing()) return table.narrow(0, 0, tokens.size(1));
  return at::embedding(table, at::ones_like(tokens.select(0, 0)).cumsum(0).sub(1));
}

}  // namespace composer::models::detail
