#include "composer/util/caching_allocator.h"

#include <bit>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>
#include <utility>

#include <c10/util/Exception.h>

#include <sys/mman.h>

namespace composer::util {
namespace {

constexpr std::size_t kHeader = 64;  // keeps the alignment that libtorch promises
constexpr std::size_t kSmallest = 256;
constexpr std::size_t kHugePage = std::size_t{2} << 20;

}  // namespace

class CachingAllocator::List::Guard {
 public:
  explicit Guard(std::atomic_flag& busy) : busy_(busy) {
    while (busy_.test_and_set(std::memory_order_acquire)) std::this_thread::yield();
  }
  ~Guard() { busy_.clear(std::memory_order_release); }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

 private:
  std::atomic_flag& busy_;
};

CachingAllocator::Block* CachingAllocator::List::pop() {
  const Guard guard(busy_);
  Block* block = first_;
  if (block == nullptr) return nullptr;
  first_ = block->next;
  memory_.cached -= block->from_system;
  memory_.used += block->from_system;
  return block;
}

void CachingAllocator::List::push(Block* block) {
  const Guard guard(busy_);
  block->next = first_;
  first_ = block;
  memory_.cached += block->from_system;
  memory_.used -= block->from_system;
}

void CachingAllocator::List::note_made(const Block& block) {
  const Guard guard(busy_);
  memory_.used += block.from_system;
}

void CachingAllocator::List::release_all() {
  Block* block = nullptr;
  {
    const Guard guard(busy_);
    block = std::exchange(first_, nullptr);
    memory_.cached = 0;
  }
  while (block != nullptr) std::free(std::exchange(block, block->next));
}

CpuMemory CachingAllocator::List::memory() {
  const Guard guard(busy_);
  return memory_;
}

CachingAllocator& CachingAllocator::instance() {
  static CachingAllocator* const allocator = new CachingAllocator();
  return *allocator;
}

std::size_t CachingAllocator::list_of(std::size_t bytes) {
  if (bytes <= kSmallest) return 0;
  const auto power = static_cast<std::size_t>(std::bit_width(bytes - 1)) - 1;  // 2^power < bytes <= 2^(power + 1)
  return (power - 8) * 4 + ((bytes - 1) >> (power - 2) & 3) + 1;
}

std::size_t CachingAllocator::block_size(std::size_t list) {
  if (list == 0) return kSmallest;
  const std::size_t power = (list - 1) / 4 + 8;
  return (std::size_t{1} << power) + (((list - 1) % 4 + 1) << (power - 2));
}

CachingAllocator::Block* CachingAllocator::from_system(std::size_t list) const {
  std::size_t bytes = block_size(list) + kHeader;
  const bool huge = huge_pages_ && bytes >= kHugePage;
  if (huge) bytes = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  void* memory = nullptr;
  if (posix_memalign(&memory, huge ? kHugePage : kHeader, bytes) != 0) return nullptr;
  if (huge) madvise(memory, bytes, MADV_HUGEPAGE);  // a wish: ordinary pages do as well
  return new (memory) Block{.next = nullptr, .list = list, .from_system = bytes};
}

void* CachingAllocator::take(std::size_t bytes) {
  const std::size_t list = list_of(bytes);
  Block* block = list < kLists ? lists_[list].pop() : nullptr;
  if (block == nullptr && list < kLists) {
    block = from_system(list);
    if (block == nullptr) {
      release_all();
      block = from_system(list);
    }
    if (block != nullptr) lists_[list].note_made(*block);
  }
  TORCH_CHECK_WITH(OutOfMemoryError, block != nullptr, "CachingAllocator: no memory for a tensor of ", bytes,
                   " bytes; tensors have ", memory().used);
  return reinterpret_cast<std::byte*>(block) + kHeader;
}

void CachingAllocator::give(void* data) {
  auto* block = reinterpret_cast<Block*>(static_cast<std::byte*>(data) - kHeader);
  List& list = lists_[block->list];
  if (c10::memoryProfilingEnabled()) report(data, -static_cast<std::int64_t>(block->from_system));
  list.push(block);
  if (limit_ != kNoLimit && memory().cached > limit_) list.release_all();
}

c10::DataPtr CachingAllocator::allocate(std::size_t bytes) {
  void* data = nullptr;
  if (bytes > 0) {
    data = take(bytes);
    if (c10::memoryProfilingEnabled())
      report(data,
             static_cast<std::int64_t>(reinterpret_cast<Block*>(static_cast<std::byte*>(data) - kHeader)->from_system));
  }
  return {data, data, raw_deleter(), c10::Device(c10::kCPU)};
}

c10::DeleterFnPtr CachingAllocator::raw_deleter() const {
  return [](void* data) {
    if (data != nullptr) instance().give(data);
  };
}

void CachingAllocator::copy_data(void* to, const void* from, std::size_t bytes) const { std::memcpy(to, from, bytes); }

void CachingAllocator::release_all() {
  for (List& list : lists_) list.release_all();
}

void CachingAllocator::report(void* data, std::int64_t bytes) {
  const auto [used, cached] = memory();
  c10::reportMemoryUsageToProfiler(data, bytes, used, used + cached, c10::Device(c10::kCPU));
}

CpuMemory CachingAllocator::memory() {
  CpuMemory sum;
  for (List& list : lists_) {
    const auto [used, cached] = list.memory();
    sum.used += used;
    sum.cached += cached;
  }
  return sum;
}

}  // namespace composer::util
