#pragma once
#include <cstdint>

#include <c10/core/Device.h>

namespace composer {

// How many bytes tensors may take on a device: as many as were given, or what the device has left once that is
// measured.
class MemoryBudget {
 public:
  explicit MemoryBudget(std::int64_t given = 0) : bytes_(given), is_given_(given != 0) {}

  // Nothing if they were given. `reserved`: bytes that somebody else will take.
  void measure(at::Device device, std::int64_t reserved = 0);
  bool is_known() const { return bytes_ != 0; }
  // At least 1. Whoever asks first measures it.
  std::int64_t bytes(at::Device device, std::int64_t reserved = 0) {
    if (bytes_ == 0) measure(device, reserved);
    return bytes_;
  }

 private:
  std::int64_t bytes_;  // 0: neither given nor measured yet
  bool is_given_;
};

}  // namespace composer
