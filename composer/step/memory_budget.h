#pragma once
#include <cstdint>

#include <c10/core/Device.h>

namespace composer {

// The bytes that tensors may take on a device: a given number, or what is free on the device when it is measured.
class MemoryBudget {
 public:
  explicit MemoryBudget(std::int64_t given = 0) : bytes_(given), is_given_(given != 0) {}

  // Measures the free memory less `reserved`, the bytes that something else will take. Does nothing if a number was
  // given.
  void measure(at::Device device, std::int64_t reserved = 0);
  bool is_known() const { return bytes_ != 0; }
  // At least 1. The first call measures, if nothing was given.
  std::int64_t bytes(at::Device device, std::int64_t reserved = 0) {
    if (bytes_ == 0) measure(device, reserved);
    return bytes_;
  }

 private:
  std::int64_t bytes_;  // 0: neither given nor measured yet
  bool is_given_;
};

}  // namespace composer
