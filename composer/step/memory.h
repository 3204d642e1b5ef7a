#pragma once
// How much memory a batch takes, and how much there is.
#include <cstdint>
#include <memory>
#include <optional>

#include <c10/core/Device.h>
#include <c10/util/ThreadLocalDebugInfo.h>

namespace composer {

// Bytes that this process can still get on the device: of a GPU what is free or cached; of the host what its control
// group and the machine have left.
std::int64_t available_memory(at::Device device);

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

// Gives what allocators keep for the next tensor back, so that larger blocks can be had.
void release_cached_memory(at::Device device);

// Counts the tensors that this thread allocates on the device while it lives. On a CPU, where nobody else refuses in
// time, an allocation that would take them above the limit is a c10::OutOfMemoryError; a GPU has its own limit. Counts
// nothing on a CPU while libtorch's profiler is running, which sits in the same place.
class MemoryScope {
 public:
  MemoryScope(at::Device device, std::int64_t limit);  // in bytes
  ~MemoryScope();
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;

  std::int64_t peak() const;  // bytes at once, until now; 0: not counted

 private:
  struct Report;
  at::Device device_;
  std::int64_t before_ = 0;  // of a GPU
  std::shared_ptr<Report> report_;
  std::optional<c10::DebugInfoGuard> guard_;
};

}  // namespace composer
