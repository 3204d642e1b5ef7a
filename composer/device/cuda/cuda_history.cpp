#include "composer/device/cuda/cuda_history.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <torch/csrc/Export.h>

// Weakly declared functions are null in a program without libtorch_cuda, so the library links without CUDA.
#undef TORCH_CUDA_CU_API
#define TORCH_CUDA_CU_API __attribute__((weak, visibility("default")))
#include <torch/csrc/cuda/memory_snapshot.h>

namespace composer::cuda {
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

std::unique_ptr<AllocatorHistory> history() {
  std::string (*const pickled)() = &torch::cuda::_memory_snapshot_pickled;
  if (pickled == nullptr) return nullptr;
  // Never destroyed: a trainer may be a global.
  static auto* const all = new SharedHistory(std::make_unique<CudaHistory>());
  return all->user();
}

}  // namespace composer::cuda
