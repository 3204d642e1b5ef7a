#pragma once
#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

namespace c10d {
class Backend;
class Work;
}  // namespace c10d

namespace composer::dist {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using ReduceOp = c10d::ReduceOp::RedOpType;

// The form in which a tensor is reduced: contiguous, of a dtype that every backend has.
struct Reducible {
  at::Tensor tensor;
  ReduceOp op;
};
Reducible reducible(const at::Tensor& tensor, ReduceOp op);
// Copies a result of that form into the tensor, unless it is there already.
void copy_back(const at::Tensor& tensor, const at::Tensor& result);

// All elements as bytes, in the tensor's own memory if it is contiguous.
at::Tensor flat_bytes(const at::Tensor& tensor);

// Names of these have changed in libtorch 2.13. The tensors are flat.
WorkPtr start_reduce_scatter(c10d::Backend& backend, at::Tensor part, at::Tensor all, ReduceOp op);
WorkPtr start_all_gather(c10d::Backend& backend, at::Tensor all, at::Tensor part);
WorkPtr start_exchange(c10d::Backend& backend, at::Tensor received, at::Tensor sent);

}  // namespace composer::dist
