#include "composer/dist/bf16_hook.h"

#include <vector>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>

namespace composer::dist {
namespace {

using Group = c10::intrusive_ptr<c10d::ProcessGroup>;

class Bf16Hook final : public c10d::CppCommHookInterface<Group> {
 public:
  using CppCommHookInterface::CppCommHookInterface;

  // Divides before the sum, so that the sum over many ranks cannot overflow. The Reducer converts the result back when
  // it copies it into the gradients.
  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    at::Tensor& gradients = bucket.getBufferRef();
    gradients.div_(state_->getSize());
    std::vector<at::Tensor> sent{gradients.element_size() > 2 ? gradients.to(at::kBFloat16) : gradients};
    return state_->allreduce(sent)->getFuture();
  }
};

}  // namespace

std::unique_ptr<c10d::CommHookInterface> bf16_hook(const Group& group) { return std::make_unique<Bf16Hook>(group); }

}  // namespace composer::dist
