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

// libtorch's memory of CPU tensors: small ones from BlockLists, others from PageHeap. Any thread may allocate and free.
class CachingAllocator final : public c10::Allocator {
 public:
  // The one of this process. It is never destroyed: tensors may outlive everything. A child of fork() can use it.
  static CachingAllocator& instance();

  c10::DataPtr allocate(std::size_t bytes) override;  // throws c10::OutOfMemoryError
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* to, const void* from, std::size_t bytes) const override;

  void set_huge_pages(bool on) { large_.set_huge_pages(on); }
  void set_limit(std::optional<std::size_t> cached);  // in bytes; nullopt: by need. Releases what is beyond it
  void release_all();
  CpuMemory memory();

 private:
  CachingAllocator();
  void* take(std::size_t bytes);
  void give(void* data);
  std::size_t bytes_of(const void* data);
  void report(void* data, std::int64_t bytes);
  // Around fork(): a lock that another thread holds then would never be unlocked in the child.
  void lock();
  void unlock();

  BlockLists small_;
  PageHeap large_;
  std::atomic<std::int64_t> small_limit_;  // of what small_ keeps
};

}  // namespace composer::util
