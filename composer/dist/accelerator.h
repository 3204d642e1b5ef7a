#pragma once
#include <chrono>
#include <future>
#include <mutex>
#include <optional>

#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "composer/device/collectives.h"
#include "composer/dist/environment.h"
#include "composer/dist/store.h"

namespace composer::dist {

// The collectives on the device of this rank, such as NCCL: in a library that is loaded when they are asked for.
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
  collectives::Abort* abort_ = nullptr;
  collectives::Shutdown* shutdown_ = nullptr;
  const char* maker_ = "";     // of these collectives
  std::future<void> aborted_;  // valid: abort() was called
};

}  // namespace composer::dist
