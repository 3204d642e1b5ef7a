#pragma once
#include <cstddef>
#include <memory>

#include <ATen/core/Tensor.h>

namespace composer::data::detail {

// Memory for one tensor of each batch. Reuses the memory of earlier batches whose last reference is gone, so that a
// loader writes to warm caches and mapped pages. Memory is returned with the last reference to the tensor or a view of
// it, so a batch that is kept is never overwritten. Thread-safe.
class BatchMemory {
 public:
  // `keep`: number of free pieces that are kept. Pinned memory is left to libtorch's own allocator, which determines
  // when a copy to the device is done.
  BatchMemory(std::size_t keep, bool pin_memory);

  // Returns an uninitialised tensor on the host.
  at::Tensor take(at::IntArrayRef sizes, at::ScalarType type, at::MemoryFormat format = at::MemoryFormat::Contiguous);

 private:
  class Pool;
  std::shared_ptr<Pool> pool_;  // tensors may outlive the loader
  const bool pin_memory_;
};

// Number of earlier batches that are usually still in use when the next one is made.
inline constexpr std::size_t kHeldByOthers = 2;

// Throws ConfigError if pinned memory is requested and there is no device to which it is copied faster.
void check_pin_memory(const char* who, bool pin_memory);

}  // namespace composer::data::detail
