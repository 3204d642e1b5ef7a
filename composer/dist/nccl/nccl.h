#pragma once
#include <cstdint>

#include <torch/version.h>

namespace c10d {
class ProcessGroup;
class Store;
}  // namespace c10d

// The functions of the library composer_nccl, which alone needs CUDA. They return null or the text of an error, which
// is valid until the thread calls the next one. Both sides must be compiled for the same libtorch.
namespace composer::dist::nccl {

constexpr int TORCH = TORCH_VERSION_MAJOR * 10000 + TORCH_VERSION_MINOR * 100 + TORCH_VERSION_PATCH;

extern "C" {
using TorchVersion = int();
// Adds NCCL to the group, for tensors on the GPU of that number. Connects at the first collective.
using Attach = const char*(c10d::Store* store, c10d::ProcessGroup* group, int rank, int size, int device,
                           std::int64_t timeout_ms);
// Ends all collectives of the group on GPUs, from any thread.
using Abort = const char*(c10d::ProcessGroup* group);
// Ends what NCCL has for the group, when no collective is pending on any rank.
using Shutdown = const char*(c10d::ProcessGroup* group);
}

constexpr const char* kLibrary = "libcomposer_nccl.so";
constexpr const char* TORCH_VERSION_NAME = "composer_nccl_torch_version";
constexpr const char* ATTACH_NAME = "composer_nccl_attach";
constexpr const char* ABORT_NAME = "composer_nccl_abort";
constexpr const char* SHUTDOWN_NAME = "composer_nccl_shutdown";

}  // namespace composer::dist::nccl
