#pragma once
#include <cstdint>

#include <torch/version.h>

namespace c10d {
class ProcessGroup;
class Store;
}  // namespace c10d

// The functions of a library with the collectives of a device, such as composer_nccl, which alone needs what that
// device takes. They return null or the text of an error, which is valid until the thread calls the next one. Both
// sides must be compiled for the same libtorch.
namespace composer::collectives {

constexpr int TORCH = TORCH_VERSION_MAJOR * 10000 + TORCH_VERSION_MINOR * 100 + TORCH_VERSION_PATCH;

extern "C" {
using TorchVersion = int();
// Adds the device's collectives to the group, for tensors on the device of that number. Connects at the first one.
using Attach = const char*(c10d::Store* store, c10d::ProcessGroup* group, int rank, int size, int device,
                           std::int64_t timeout_ms);
// Ends all collectives of the group on the device, from any thread.
using Abort = const char*(c10d::ProcessGroup* group);
// Ends what the library has for the group, when no collective is pending on any rank.
using Shutdown = const char*(c10d::ProcessGroup* group);
}

constexpr const char* TORCH_VERSION_NAME = "composer_collectives_torch_version";
constexpr const char* ATTACH_NAME = "composer_collectives_attach";
constexpr const char* ABORT_NAME = "composer_collectives_abort";
constexpr const char* SHUTDOWN_NAME = "composer_collectives_shutdown";

}  // namespace composer::collectives
