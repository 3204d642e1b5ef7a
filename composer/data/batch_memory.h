#pragma once
#include <cstddef>
#include <memory>

#include <ATen/core/Tensor.h>

namespace composer::data::detail {

// Memory for one tensor of each batch: that of earlier ones whose last reference is gone, so that a loader writes where
// the caches are warm and the system need not find pages. The last reference to a tensor or a view of it hands the
// memory back, so what somebody kept is never written to. May be asked from several threads at once.
class BatchMemory {
 public:
  // `keep`: how many free pieces are kept. Pinned memory is left to libtorch's own allocator, which knows when a copy
  // to the device is done.
  BatchMemory(std::size_t keep, bool pin_memory);

  // Not initialised, on the host.
  at::Tensor take(at::IntArrayRef sizes, at::ScalarType type, at::MemoryFormat format = at::MemoryFormat::Contiguous);

 private:
  class Pool;
  std::shared_ptr<Pool> pool_;  // tensors may outlive the loader
  const bool pin_memory_;
};

// Throws ConfigError if pinned memory is asked for where libtorch has no CUDA device.
void check_pin_memory(const char* who, bool pin_memory);

}  // namespace composer::data::detail
