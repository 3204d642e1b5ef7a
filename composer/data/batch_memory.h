#pragma once
#include <cstddef>
#include <mutex>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

namespace composer::data::detail {

// Memory for one tensor of each batch: what was given before, if nobody holds it any more, so that a loader writes
// where the caches are warm and the system need not find pages. A tensor that somebody kept, or a view of it, is never
// written to. May be asked from several threads at once.
class BatchMemory {
 public:
  // `keep`: how many pieces are remembered. Pinned memory is left to libtorch's own allocator, which knows when a copy
  // to the device is done.
  BatchMemory(std::size_t keep, bool pin_memory);

  // Not initialised, on the host.
  at::Tensor take(at::IntArrayRef sizes, at::ScalarType type, at::MemoryFormat format = at::MemoryFormat::Contiguous);

 private:
  c10::Storage storage(std::size_t bytes);

  const std::size_t keep_;
  const bool pin_memory_;
  std::mutex mutex_;  // of what follows
  std::vector<c10::Storage> given_;
  std::size_t oldest_ = 0;
};

// Throws ConfigError if pinned memory is asked for where libtorch has no CUDA device.
void check_pin_memory(const char* who, bool pin_memory);

}  // namespace composer::data::detail
