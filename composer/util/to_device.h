#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

namespace composer::util {

// The tensor where the device is. Nobody waits for a copy to a GPU; one to the CPU has arrived when this returns, which
// libtorch does not promise of a copy that does not block.
inline at::Tensor to_device(const at::Tensor& tensor, at::Device device) {
  return tensor.to(device, /*non_blocking=*/!device.is_cpu());
}

}  // namespace composer::util
