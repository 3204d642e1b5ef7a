#pragma once
#include <cstdint>

#include <torch/version.h>

namespace c10d {
class ProcessGroup;
class Store;
}  // namespace c10d

// The functions of a library with the collectives of a device, such as composer_nccl. Only this library needs the
// device's own dependencies. Functions with a text as result return null, or an error that is valid until the thread's
// next call. Both sides must be compiled for the same libtorch.
namespace composer::collectives {

constexpr int TORCH = TORCH_VERSION_MAJOR * 10000 + TORCH_VERSION_MINOR * 100 + TORCH_VERSION_PATCH;

extern "C" {
using TorchVersion = int();
// Adds collectives to the group for tensors on the device with the index `device`. Connects at the first collective.
using Attach = const char*(c10d::Store* store, c10d::ProcessGroup* group, int rank, int size, int device,
                           std::int64_t timeout_ms);
// Ends all collectives of the group on the device. May be called from any thread.
using Abort = const char*(c10d::ProcessGroup* group);
// Frees what the library has for the group. To be called when no collective is pending on any rank.
using Shutdown = const char*(c10d::ProcessGroup* group);
}

constexpr const char* TORCH_VERSION_NAME = "composer_collectives_torch_version";
constexpr const char* ATTACH_NAME = "composer_collectives_attach";
constexpr const char* ABORT_NAME = "composer_collectives_abort";
constexpr const char* SHUTDOWN_NAME = "composer_collectives_shutdown";

}  // namespace composer::collectives
