#include "composer/callbacks/allocator_history.h"

#include <optional>
#include <vector>

#include <torch/csrc/Export.h>

// Weak declarations are null in a program without libtorch_cuda, so the library needs no CUDA to link.
#undef TORCH_CUDA_CU_API
#define TORCH_CUDA_CU_API __attribute__((weak, visibility("default")))
#include <torch/csrc/cuda/memory_snapshot.h>

namespace composer::callbacks {
namespace {

class CudaHistory final : public AllocatorHistory {
 public:
  void start(std::int64_t max_entries) override {
    torch::cuda::_record_memory_history(std::optional<std::string>("all"), std::optional<std::string>("all"),
                                        std::string("all"), static_cast<std::size_t>(max_entries));
  }
  std::string snapshot() override { return torch::cuda::_memory_snapshot_pickled(); }
  void stop() override {
    torch::cuda::_record_memory_history(std::optional<std::string>(), std::optional<std::string>(), std::string("all"),
                                        std::size_t{1});
  }
};

}  // namespace

std::unique_ptr<AllocatorHistory> allocator_history_of(c10::Device device) {
  std::string (*const pickled)() = &torch::cuda::_memory_snapshot_pickled;
  if (!device.is_cuda() || pickled == nullptr) return nullptr;
  return std::make_unique<CudaHistory>();
}

}  // namespace composer::callbacks
