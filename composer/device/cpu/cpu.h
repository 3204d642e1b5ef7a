#pragma once
#include "composer/device/device_support.h"

namespace composer {

class CpuSupport : public DeviceSupport {
 public:
  // The name that the system gives the processor; "unknown" if it gives none.
  std::string name_of(at::Device device) const override;
  c10::DeviceAllocator* allocator(at::Device device) const override;  // null: libtorch's has no statistics
  // Bytes that the control group and the machine still have for this process.
  std::int64_t available_memory(at::Device device) const override;
  void release_cached_memory(at::Device device) const override;
  // Counts nothing while libtorch's profiler is running, because both use the same hook.
  std::unique_ptr<MemoryScope> count_memory(at::Device device, std::int64_t limit) const override;
};

}  // namespace composer
