#pragma once
#include "composer/device/device_support.h"

namespace composer {

class CpuSupport : public DeviceSupport {
 public:
  // The processor as the system names it; "unknown" where it does not.
  std::string name_of(at::Device device) const override;
  c10::DeviceAllocator* allocator(at::Device device) const override;  // libtorch's has no statistics
  // What its control group and the machine have left for this process.
  std::int64_t available_memory(at::Device device) const override;
  void release_cached_memory(at::Device device) const override;
  // Counts nothing while libtorch's profiler is running, which sits in the same place.
  std::unique_ptr<MemoryScope> count_memory(at::Device device, std::int64_t limit) const override;
};

}  // namespace composer
