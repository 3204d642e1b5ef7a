// Memory for small tensors. Internal.
#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "composer/util/tune_process.h"

namespace composer::util {

// Keeps freed blocks in lists by size. There are four sizes for each power of two, so a block is at most a quarter
// longer than requested. A header before each block names its list, so freeing needs no search. Any thread may call
// take() and give().
class BlockLists {
 public:
  static constexpr std::size_t kLargest = std::size_t{64} << 10;

  void* take(std::size_t bytes);  // at most kLargest, aligned to 64 bytes; nullptr: the system has no memory
  void give(void* data);
  static std::size_t bytes_of(const void* data);  // bytes that the system gave for this block, with its header

  void release_all();
  CpuMemory memory();
  // Takes no lock, so recent changes may be missing.
  std::int64_t roughly_cached() const { return cached_.load(std::memory_order_relaxed); }

  // Between lock() and unlock(), no other thread is within take() or give().
  void lock();
  void unlock();

  static std::size_t list_of(std::size_t bytes);    // the list of the shortest blocks that hold `bytes`
  static std::size_t block_size(std::size_t list);  // without the header

 private:
  static constexpr std::size_t kSmallestPower = 8;  // log2 of the shortest block
  static constexpr std::size_t kLargestPower = 16;  // log2 of kLargest
  static constexpr std::size_t kSizesPerPower = 4;
  static constexpr std::size_t kLists = (kLargestPower - kSmallestPower) * kSizesPerPower + 1;
  static constexpr std::size_t kHeader = 64;  // keeps the alignment that libtorch promises
  static_assert(kLargest == std::size_t{1} << kLargestPower);

  struct Block {
    Block* next;
    std::size_t list;
    std::size_t from_system;  // bytes, with the header
  };
  static_assert(sizeof(Block) <= kHeader);
  static Block* block_of(void* data);
  static Block* from_system(std::size_t list);

  // Blocks of one size. Each list counts under its own lock, so that threads share nothing, and adds its changes to a
  // common sum once they exceed a threshold.
  class List {
   public:
    Block* pop(std::atomic<std::int64_t>& cached_by_all);  // nullptr: empty
    void push(Block* block, std::atomic<std::int64_t>& cached_by_all);
    void note_made(const Block& block);
    void release_all(std::atomic<std::int64_t>& cached_by_all);
    CpuMemory memory();
    void lock();
    void unlock() { busy_.clear(std::memory_order_release); }

   private:
    void change_cached(std::int64_t bytes, std::atomic<std::int64_t>& cached_by_all);

    std::atomic_flag busy_;
    Block* first_ = nullptr;
    CpuMemory memory_;
    std::int64_t unreported_ = 0;  // change of memory_.cached that is not yet in the common sum
  };

  std::array<List, kLists> lists_;
  std::atomic<std::int64_t> cached_ = 0;
};

}  // namespace composer::util
