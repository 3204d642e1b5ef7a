#include "composer/util/block_lists.h"

#include <bit>
#include <cstdlib>
#include <mutex>
#include <new>
#include <thread>
#include <utility>

namespace composer::util {
namespace {

constexpr std::int64_t kReportAfter = std::int64_t{16} << 10;  // bytes

}  // namespace

void BlockLists::List::lock() {
  while (busy_.test_and_set(std::memory_order_acquire)) std::this_thread::yield();
}

void BlockLists::List::change_cached(std::int64_t bytes, std::atomic<std::int64_t>& cached_by_all) {
  memory_.cached += static_cast<std::size_t>(bytes);
  memory_.used -= static_cast<std::size_t>(bytes);
  unreported_ += bytes;
  if (unreported_ < kReportAfter && unreported_ > -kReportAfter) return;
  cached_by_all.fetch_add(std::exchange(unreported_, 0), std::memory_order_relaxed);
}

BlockLists::Block* BlockLists::List::pop(std::atomic<std::int64_t>& cached_by_all) {
  const std::lock_guard guard(*this);
  Block* block = first_;
  if (block == nullptr) return nullptr;
  first_ = block->next;
  change_cached(-static_cast<std::int64_t>(block->from_system), cached_by_all);
  return block;
}

void BlockLists::List::push(Block* block, std::atomic<std::int64_t>& cached_by_all) {
  const std::lock_guard guard(*this);
  block->next = first_;
  first_ = block;
  change_cached(static_cast<std::int64_t>(block->from_system), cached_by_all);
}

void BlockLists::List::note_made(const Block& block) {
  const std::lock_guard guard(*this);
  memory_.used += block.from_system;
}

void BlockLists::List::release_all(std::atomic<std::int64_t>& cached_by_all) {
  Block* block = nullptr;
  {
    const std::lock_guard guard(*this);
    block = std::exchange(first_, nullptr);
    const auto cached = static_cast<std::int64_t>(std::exchange(memory_.cached, 0));
    cached_by_all.fetch_add(std::exchange(unreported_, 0) - cached, std::memory_order_relaxed);
  }
  while (block != nullptr) std::free(std::exchange(block, block->next));
}

CpuMemory BlockLists::List::memory() {
  const std::lock_guard guard(*this);
  return memory_;
}

std::size_t BlockLists::list_of(std::size_t bytes) {
  if (bytes <= std::size_t{1} << kSmallestPower) return 0;
  const auto power = static_cast<std::size_t>(std::bit_width(bytes - 1)) - 1;  // 2^power < bytes <= 2^(power + 1)
  const std::size_t quarter = std::size_t{1} << (power - 2);
  const std::size_t quarters_above = (bytes - 1 - (std::size_t{1} << power)) / quarter;
  return (power - kSmallestPower) * kSizesPerPower + quarters_above + 1;
}

std::size_t BlockLists::block_size(std::size_t list) {
  if (list == 0) return std::size_t{1} << kSmallestPower;
  const std::size_t power = (list - 1) / kSizesPerPower + kSmallestPower;
  const std::size_t quarters_above = (list - 1) % kSizesPerPower + 1;
  return (std::size_t{1} << power) + quarters_above * (std::size_t{1} << (power - 2));
}

BlockLists::Block* BlockLists::block_of(void* data) {
  return reinterpret_cast<Block*>(static_cast<std::byte*>(data) - kHeader);
}

std::size_t BlockLists::bytes_of(const void* data) {
  return reinterpret_cast<const Block*>(static_cast<const std::byte*>(data) - kHeader)->from_system;
}

BlockLists::Block* BlockLists::from_system(std::size_t list) {
  const std::size_t bytes = block_size(list) + kHeader;
  void* memory = nullptr;
  if (posix_memalign(&memory, kHeader, bytes) != 0) return nullptr;
  return new (memory) Block{.next = nullptr, .list = list, .from_system = bytes};
}

void* BlockLists::take(std::size_t bytes) {
  List& list = lists_.at(list_of(bytes));
  Block* block = list.pop(cached_);
  if (block == nullptr) {
    block = from_system(list_of(bytes));
    if (block == nullptr) return nullptr;
    list.note_made(*block);
  }
  return reinterpret_cast<std::byte*>(block) + kHeader;
}

void BlockLists::give(void* data) {
  Block* block = block_of(data);
  lists_.at(block->list).push(block, cached_);
}

void BlockLists::release_all() {
  for (List& list : lists_) list.release_all(cached_);
}

CpuMemory BlockLists::memory() {
  CpuMemory sum;
  for (List& list : lists_) {
    const auto [used, cached] = list.memory();
    sum.used += used;
    sum.cached += cached;
  }
  return sum;
}

void BlockLists::lock() {
  for (List& list : lists_) list.lock();
}

void BlockLists::unlock() {
  for (List& list : lists_) list.unlock();
}

}  // namespace composer::util
