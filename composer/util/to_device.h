#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

namespace composer::util {

// Copies the tensor to the device, or returns it if it is there. Copies to a GPU are not waited for. A copy to the CPU
// has arrived when this returns; libtorch does not promise that for a non-blocking copy.
inline at::Tensor to_device(const at::Tensor& tensor, at::Device device) {
  return tensor.to(device, /*non_blocking=*/!device.is_cpu());
}

}  // namespace composer::util
