#pragma once
#include <optional>

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "composer/core/scalar.h"

namespace composer::loggers {

// Reads one-element tensors from a device without waiting: each call starts a copy, whose result a later call returns.
class DeviceValue {
 public:
  // The newest value whose copy is complete.
  std::optional<Scalar> look(const at::Tensor& tensor) {
    if (copied_ && copied_->query()) {
      value_ = read_scalar(on_host_);
      copied_.reset();
    }
    if (!copied_) {
      on_host_ = tensor.to(at::kCPU, /*non_blocking=*/true);
      copied_.emplace(tensor.device().type());
      copied_->record(c10::impl::VirtualGuardImpl(tensor.device().type()).getStream(tensor.device()));
    }
    return value_;
  }

 private:
  std::optional<c10::Event> copied_;  // unset: no copy is being made
  at::Tensor on_host_;
  std::optional<Scalar> value_;
};

}  // namespace composer::loggers
