#pragma once
// The history of the CUDA caching allocator. Internal to MemorySnapshot.
#include <cstdint>
#include <memory>
#include <string>

#include <c10/core/Device.h>

namespace composer::callbacks {

class AllocatorHistory {
 public:
  virtual ~AllocatorHistory() = default;
  virtual void start(std::int64_t max_entries) = 0;
  virtual std::string snapshot() = 0;  // a pickle, as of torch.cuda.memory._snapshot()
  virtual void stop() = 0;
};

// Null unless `device` is a CUDA device and the program contains libtorch_cuda.
std::unique_ptr<AllocatorHistory> allocator_history_of(c10::Device device);

}  // namespace composer::callbacks
