#pragma once
#include <chrono>
#include <mutex>
#include <optional>

#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "composer/dist/environment.h"
#include "composer/dist/nccl/nccl.h"
#include "composer/dist/store.h"

namespace composer::dist {

// The collectives on the GPU of this rank: NCCL, in a library that is loaded when they are asked for.
class Accelerator {
 public:
  // Adds them to the group. Throws ConfigError if there are none for the device, or for another one already.
  void attach(const c10::intrusive_ptr<c10d::ProcessGroup>& group, const StorePtr& store,
              const Environment& environment, c10::Device device, std::chrono::milliseconds timeout);
  bool has(c10::Device device);
  // Ends pending collectives, and returns at once. May be called from any thread, also if there are none.
  void abort();

 private:
  std::mutex mutex_;
  std::optional<c10::Device> device_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  nccl::Abort* abort_ = nullptr;
};

}  // namespace composer::dist
