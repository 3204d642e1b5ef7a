// Allocates memory for large tensors. Internal.
#pragma once
#include <cstddef>
#include <mutex>
#include <optional>

#include "composer/util/address_space.h"
#include "composer/util/range_cache.h"
#include "composer/util/tune_process.h"

namespace composer::util {

// Allocates whole pages from one stretch of addresses. Freed pages are kept for later blocks of any size, up to a
// limit. Any thread may call any function.
class PageHeap {
 public:
  static constexpr std::size_t kPage = 4096;

  PageHeap();

  void* take(std::size_t bytes);  // aligned to a page; nullptr: the system has no memory
  std::size_t give(void* data);   // returns the length of the block, in bytes
  std::size_t bytes_of(const void* data);
  bool owns(const void* data) const { return space_.contains(data); }

  void set_huge_pages(bool on);
  // Limits the bytes that are kept; what exceeds the limit is released. nullopt: as much as repeated steps need again.
  // Kept and used pages together are then at most an eighth more than were recently in use at once (while 16 to 32
  // times as much was taken), or a quarter more once that limit has made 1/128 of what was taken return to the system.
  void set_limit(std::optional<std::size_t> cached);
  void release_all();
  CpuMemory memory();
  std::size_t trimmed();  // bytes returned to the system so far because more were free than may be kept

  // Between lock() and unlock(), no other thread changes anything.
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  std::size_t offset_of(const void* data) const;
  std::size_t peak() const;
  std::size_t allowed() const;
  bool ends_window(std::size_t bytes);
  std::size_t release_beyond(std::size_t cached, std::unique_lock<std::mutex>& lock);

  AddressSpace space_;
  std::mutex mutex_;  // guards everything below
  RangeCache ranges_;
  std::optional<std::size_t> limit_;
  std::size_t peak_ = 0, previous_peak_ = 0;  // bytes in use at once, in this window of time and in the previous one
  std::size_t taken_ = 0;                     // bytes taken in this window
  std::size_t trimmed_ = 0, trimmed_before_ = 0;  // bytes released so far, and before this window
  std::size_t part_kept_ = 8;                     // 1 / part_kept_ of peak() is kept in addition to peak()
  std::size_t grain_ = AddressSpace::kHugePage;   // unit in which memory is released, in bytes
};

}  // namespace composer::util
