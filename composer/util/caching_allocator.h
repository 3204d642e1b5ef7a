#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include <c10/core/Allocator.h>

#include "composer/util/block_lists.h"
#include "composer/util/page_heap.h"
#include "composer/util/tune_process.h"

namespace composer::util {

// libtorch's allocator for CPU tensors: small blocks come from BlockLists, others from PageHeap. Any thread may
// allocate and free.
class CachingAllocator final : public c10::Allocator {
 public:
  // The allocator of this process. It is never destroyed, because tensors may outlive every other object. It also works
  // in a child of fork().
  static CachingAllocator& instance();

  c10::DataPtr allocate(std::size_t bytes) override;  // throws c10::OutOfMemoryError
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* to, const void* from, std::size_t bytes) const override;

  void set_huge_pages(bool on) { large_.set_huge_pages(on); }
  // Bytes; nullopt: as much as repeated steps need. Releases what exceeds the limit.
  void set_limit(std::optional<std::size_t> cached);
  void release_all();
  CpuMemory memory();

 private:
  CachingAllocator();
  void* take(std::size_t bytes);
  void give(void* data);
  std::size_t bytes_of(const void* data);
  void report(void* data, std::int64_t bytes);
  // To be held around fork(): a lock that another thread holds at that moment would never be unlocked in the child.
  void lock();
  void unlock();

  BlockLists small_;
  PageHeap large_;
  std::atomic<std::int64_t> small_limit_;  // bytes that small_ may keep
};

}  // namespace composer::util
