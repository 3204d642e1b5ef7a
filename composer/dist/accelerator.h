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

// The collectives on the device of this rank, such as NCCL. They are in a library of their own, which attach() loads.
class Accelerator {
 public:
  Accelerator() = default;
  // Waits a few seconds for an abort() that has not ended.
  ~Accelerator();
  Accelerator(const Accelerator&) = delete;
  Accelerator& operator=(const Accelerator&) = delete;

  // Adds the collectives of the device to the group. Throws ConfigError if there are none for the device, or if a
  // different device is attached already.
  void attach(const c10::intrusive_ptr<c10d::ProcessGroup>& group, const StorePtr& store,
              const Environment& environment, c10::Device device, std::chrono::milliseconds timeout);
  bool has(c10::Device device);
  // Ends pending collectives and returns at once; without any, does nothing. May be called from any thread. Afterwards
  // there are no collectives on the GPU.
  void abort();
  // The orderly end. To be called once all ranks have finished their last collective.
  void shutdown();

 private:
  std::mutex mutex_;
  std::optional<c10::Device> device_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;  // null: there are no collectives on a GPU
  collectives::Abort* abort_ = nullptr;
  collectives::Shutdown* shutdown_ = nullptr;
  const char* maker_ = "";     // of the collectives, for messages
  std::future<void> aborted_;  // valid once abort() was called
};

}  // namespace composer::dist
