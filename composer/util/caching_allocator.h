#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>

#include <c10/core/Allocator.h>

#include "composer/util/tune_process.h"

namespace composer::util {

// Keeps freed blocks in lists by size: four sizes for each power of two, so a block is at most a quarter too long. A
// header of 64 bytes before each block knows its list, so freeing looks nothing up. Any thread may allocate and free.
class CachingAllocator final : public c10::Allocator {
 public:
  // The one of this process. It is never destroyed: tensors may outlive everything.
  static CachingAllocator& instance();

  c10::DataPtr allocate(std::size_t bytes) override;  // throws c10::OutOfMemoryError
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* to, const void* from, std::size_t bytes) const override;

  void set_huge_pages(bool on) { huge_pages_ = on; }
  void set_limit(std::size_t bytes) { limit_ = bytes; }
  void release_all();
  CpuMemory memory();

  static std::size_t list_of(std::size_t bytes);    // the shortest blocks that hold so many bytes
  static std::size_t block_size(std::size_t list);  // without the header
  static constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();
  static constexpr std::size_t kLists = 4 * 40;  // the last holds 2^47 bytes

 private:
  struct Block {
    Block* next;
    std::size_t list;
    std::size_t from_system;  // bytes, with the header
  };
  // Blocks of one size. It counts in bytes, under its own lock, so that nothing is shared by all threads.
  class List {
   public:
    Block* pop();  // nullptr: empty
    void push(Block* block);
    void note_made(const Block& block);
    void release_all();
    CpuMemory memory();

   private:
    class Guard;
    std::atomic_flag busy_;
    Block* first_ = nullptr;
    CpuMemory memory_;
  };

  CachingAllocator() = default;
  void* take(std::size_t bytes);
  Block* from_system(std::size_t list) const;
  void give(void* data);
  void report(void* data, std::int64_t bytes);

  std::array<List, kLists> lists_;
  std::atomic<bool> huge_pages_ = true;
  std::atomic<std::size_t> limit_ = kNoLimit;
};

}  // namespace composer::util
