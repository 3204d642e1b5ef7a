#include "composer/data/batch_memory.h"

#include <cstddef>
#include <iterator>
#include <mutex>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/Storage.h>

#include "composer/core/error.h"
#include "composer/device/device_support.h"

namespace composer::data::detail {
namespace {

constexpr std::size_t kHeader = 64;  // keeps the alignment that libtorch promises

}  // namespace

class BatchMemory::Pool : public std::enable_shared_from_this<Pool> {
 public:
  explicit Pool(std::size_t keep) : keep_(keep) {}

  // Returns at least `bytes`, which return to this pool when their last reference is gone.
  at::DataPtr take(std::size_t bytes) {
    std::unique_ptr<Piece> piece = free_piece(bytes);
    if (!piece)
      piece = std::make_unique<Piece>(Piece{nullptr, c10::GetCPUAllocator()->allocate(kHeader + bytes), bytes});
    piece->pool = shared_from_this();
    auto* header = static_cast<std::byte*>(piece->memory.get());
    new (header) Piece*(piece.release());
    return {header + kHeader, header + kHeader, &give_back, c10::Device(c10::kCPU)};
  }

 private:
  struct Piece {
    std::shared_ptr<Pool> pool;  // set while the piece is in use
    at::DataPtr memory;          // begins with the address of its Piece, as a header
    std::size_t bytes;
  };
  static_assert(sizeof(Piece*) <= kHeader);

  std::unique_ptr<Piece> free_piece(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    for (auto it = free_.rbegin(); it != free_.rend(); ++it) {  // the piece freed last is most likely in the caches
      if ((*it)->bytes < bytes) continue;
      std::unique_ptr<Piece> piece = std::move(*it);
      free_.erase(std::next(it).base());
      return piece;
    }
    return nullptr;
  }

  static void give_back(void* data) {
    std::unique_ptr<Piece> piece(*reinterpret_cast<Piece**>(static_cast<std::byte*>(data) - kHeader));
    const std::shared_ptr<Pool> pool = std::move(piece->pool);
    const std::lock_guard lock(pool->mutex_);
    pool->free_.push_back(std::move(piece));
    if (pool->free_.size() > pool->keep_) pool->free_.erase(pool->free_.begin());
  }

  const std::size_t keep_;
  std::mutex mutex_;  // guards the members below
  std::vector<std::unique_ptr<Piece>> free_;
};

BatchMemory::BatchMemory(std::size_t keep, bool pin_memory)
    : pool_(std::make_shared<Pool>(keep)), pin_memory_(pin_memory) {}

at::Tensor BatchMemory::take(at::IntArrayRef sizes, at::ScalarType type, at::MemoryFormat format) {
  const auto options = at::TensorOptions(type).memory_format(format);
  if (pin_memory_) return at::empty(sizes, options.pinned_memory(true));
  const auto bytes = static_cast<std::size_t>(c10::multiply_integers(sizes)) * c10::elementSize(type);
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, pool_->take(bytes), c10::GetCPUAllocator(),
                       /*resizable=*/true);
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), c10::scalarTypeToTypeMeta(type));
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  tensor.unsafeGetTensorImpl()->empty_tensor_restride(format);
  return tensor;
}

void check_pin_memory(const char* who, bool pin_memory) {
  if (!pin_memory) return;
  const std::optional<at::DeviceType> accelerator = available_accelerator();
  if (!accelerator || !device_support(*accelerator).pins_memory())
    throw ConfigError(who, ": pin_memory requires a CUDA device, and libtorch finds none");
}

}  // namespace composer::data::detail
