#include "composer/callbacks/allocator_history.h"

#include <exception>
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

class SharedHistory::User final : public AllocatorHistory {
 public:
  explicit User(SharedHistory& all) : all_(all) {}
  ~User() override {
    try {
      stop();
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): who wants to know calls stop()
    }
  }
  User(const User&) = delete;
  User& operator=(const User&) = delete;

  void start(std::int64_t max_entries) override {
    const std::lock_guard lock(all_.mutex_);
    if (mine_) return;
    if (all_.entries_.empty() || *all_.entries_.rbegin() < max_entries) all_.history_->start(max_entries);
    mine_ = all_.entries_.insert(max_entries);
  }
  std::string snapshot() override {
    const std::lock_guard lock(all_.mutex_);
    return all_.history_->snapshot();
  }
  void stop() override {
    const std::lock_guard lock(all_.mutex_);
    if (!mine_) return;
    all_.entries_.erase(*mine_);
    mine_.reset();
    if (all_.entries_.empty()) all_.history_->stop();
  }

 private:
  SharedHistory& all_;
  std::optional<std::multiset<std::int64_t>::iterator> mine_;
};

std::unique_ptr<AllocatorHistory> SharedHistory::user() { return std::make_unique<User>(*this); }

std::unique_ptr<AllocatorHistory> allocator_history_of(c10::Device device) {
  std::string (*const pickled)() = &torch::cuda::_memory_snapshot_pickled;
  if (!device.is_cuda() || pickled == nullptr) return nullptr;
  static auto* const all = new SharedHistory(std::make_unique<CudaHistory>());  // a trainer may be a global
  return all->user();
}

}  // namespace composer::callbacks
