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

// A tensor in the form in which it is reduced: contiguous, and of a dtype that every backend supports.
struct Reducible {
  at::Tensor tensor;
  ReduceOp op;
};
Reducible reducible(const at::Tensor& tensor, ReduceOp op);
// Copies a result of reducible()'s form into the tensor, unless both share memory already.
void copy_back(const at::Tensor& tensor, const at::Tensor& result);

// All elements as a flat tensor of bytes. Shares the tensor's memory if it is contiguous.
at::Tensor flat_bytes(const at::Tensor& tensor);

// Wrappers for calls whose names changed in libtorch 2.13. The tensors are flat.
WorkPtr start_reduce_scatter(c10d::Backend& backend, at::Tensor part, at::Tensor all, ReduceOp op);
WorkPtr start_all_gather(c10d::Backend& backend, at::Tensor all, at::Tensor part);
WorkPtr start_exchange(c10d::Backend& backend, at::Tensor received, at::Tensor sent);

}  // namespace composer::dist
