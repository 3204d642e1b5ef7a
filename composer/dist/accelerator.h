#pragma once
#include <chrono>
#include <future>
#include <mutex>
#include <optional>

#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "composer/dist/environment.h"
#include "composer/dist/nccl/nccl.h"
#include "composer/dist/store.h"

namespace composer::dist {

// So that a lost rank ends in a PeerLost: NCCL's watchdog, which finds out as well, ends the process by a signal unless
// the environment says otherwise. It still ends collectives that fail or take too long. A variable that is set stays.
void leave_ends_to_us();

// The collectives on the GPU of this rank: NCCL, in a library that is loaded when they are asked for.
class Accelerator {
 public:
  Accelerator() = default;
  // Waits a few seconds for an abort() that has not ended.
  ~Accelerator();
  Accelerator(const Accelerator&) = delete;
  Accelerator& operator=(const Accelerator&) = delete;

  // Adds them to the group. Throws ConfigError if there are none for the device, or for another one already.
  void attach(const c10::intrusive_ptr<c10d::ProcessGroup>& group, const StorePtr& store,
              const Environment& environment, c10::Device device, std::chrono::milliseconds timeout);
  bool has(c10::Device device);
  // Ends pending collectives, and returns at once. May be called from any thread, also if there are none. There are no
  // collectives on the GPU afterwards.
  void abort();
  // The orderly end, once all ranks have done their last collective.
  void shutdown();

 private:
  std::mutex mutex_;
  std::optional<c10::Device> device_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;  // null: there are no collectives on a GPU
  nccl::Abort* abort_ = nullptr;
  nccl::Shutdown* shutdown_ = nullptr;
  std::future<void> aborted_;  // valid: abort() was called
};

}  // namespace composer::dist
