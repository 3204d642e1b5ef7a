#pragma once
#include "composer/device/device_support.h"

namespace composer::test {

// While it lives, devices of this type are those of `support`, which outlives it.
class SupportedBy {
 public:
  SupportedBy(at::DeviceType type, const DeviceSupport& support)
      : type_(type), before_(exchange_device_support(type, &support)) {}
  ~SupportedBy() { exchange_device_support(type_, before_); }
  SupportedBy(const SupportedBy&) = delete;
  SupportedBy& operator=(const SupportedBy&) = delete;

 private:
  const at::DeviceType type_;
  const DeviceSupport* const before_;
};

}  // namespace composer::test
