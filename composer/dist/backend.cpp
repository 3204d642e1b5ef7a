#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/view_as_real.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/version.h>

#include "composer/dist/collectives.h"

#define COMPOSER_TORCH (TORCH_VERSION_MAJOR * 100 + TORCH_VERSION_MINOR)

namespace composer::dist {

Reducible reducible(const at::Tensor& given, ReduceOp op) {
  const at::Tensor tensor = given.detach();
  switch (tensor.scalar_type()) {
    case at::kBool:  // the sum of true and true is true
      return {tensor.to(at::kByte), op == ReduceOp::SUM ? ReduceOp::MAX : op};
    case at::kShort:
      return {tensor.to(at::kInt).contiguous(), op};
    case at::kComplexHalf:
    case at::kComplexFloat:
    case at::kComplexDouble:
      if (op == ReduceOp::SUM) return {at::view_as_real(tensor).contiguous(), op};
      break;  // complex numbers have no order, so the backend rejects other operations
    default:
      break;
  }
  return {tensor.contiguous(), op};
}

void copy_back(const at::Tensor& tensor, const at::Tensor& result) {
  if (tensor.data_ptr() == result.data_ptr()) return;
  const at::NoGradGuard no_grad;
  tensor.copy_(tensor.is_complex() && !result.is_complex() ? at::view_as_complex(result) : result);
}

at::Tensor flat_bytes(const at::Tensor& tensor) { return tensor.detach().contiguous().view({-1}).view(at::kByte); }

WorkPtr start_reduce_scatter(c10d::Backend& backend, at::Tensor part, at::Tensor all, ReduceOp op) {
  c10d::ReduceScatterOptions options;
  options.reduceOp = op;
#if COMPOSER_TORCH >= 213
  return backend.reduce_scatter_single(part, all, options);
#else
  return backend._reduce_scatter_base(part, all, options);
#endif
}

WorkPtr start_all_gather(c10d::Backend& backend, at::Tensor all, at::Tensor part) {
#if COMPOSER_TORCH >= 213
  return backend.all_gather_single(all, part);
#else
  return backend._allgather_base(all, part);
#endif
}

WorkPtr start_exchange(c10d::Backend& backend, at::Tensor received, at::Tensor sent) {
  std::vector<std::int64_t> equal;  // empty means equal parts
  std::vector<std::int64_t> equal_too;
#if COMPOSER_TORCH >= 213
  return backend.all_to_all_single(received, sent, equal, equal_too);
#else
  return backend.alltoall_base(received, sent, equal, equal_too);
#endif
}

}  // namespace composer::dist

#undef COMPOSER_TORCH
