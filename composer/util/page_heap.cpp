#include "composer/util/page_heap.h"

#include <algorithm>
#include <unistd.h>
#include <utility>
#include <vector>

namespace composer::util {
namespace {

constexpr std::size_t kLeastAddresses = std::size_t{64} << 30;
constexpr std::size_t kAddressesPerByteOfMemory = 8;  // leaves room for gaps between ranges of different sizes
constexpr std::size_t kAlwaysKept = std::size_t{32} << 20;
constexpr std::size_t kWindow = 16;  // a window of time lasts until kWindow times peak() was taken
// At most 1 / kTrimmed of the bytes taken in a window should return to the system.
constexpr std::size_t kTrimmed = 128;
constexpr std::size_t kLargePart = 4;

std::size_t bytes_of_memory() {
  return static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

PageHeap::PageHeap()
    : space_(std::max(kLeastAddresses, kAddressesPerByteOfMemory * bytes_of_memory())), ranges_(space_.size()) {}

std::size_t PageHeap::offset_of(const void* data) const {
  return static_cast<std::size_t>(static_cast<const std::byte*>(data) - space_.begin());
}

void* PageHeap::take(std::size_t bytes) {
  if (bytes > space_.size()) return nullptr;
  const std::size_t pages = (bytes + kPage - 1) / kPage * kPage;
  std::unique_lock lock(mutex_);
  const auto offset = ranges_.take(pages);
  if (!offset) return nullptr;
  if (!space_.commit(*offset + pages)) {
    ranges_.give(*offset);
    release_beyond(0, lock);
    return nullptr;
  }
  const bool ends = ends_window(pages);
  trimmed_ += release_beyond(allowed(), lock);
  if (ends) trimmed_before_ = trimmed_;  // releasing memory after a lower peak does not indicate gaps
  return space_.begin() + *offset;
}

std::size_t PageHeap::give(void* data) {
  std::unique_lock lock(mutex_);
  const std::size_t bytes = ranges_.give(offset_of(data));
  trimmed_ += release_beyond(allowed(), lock);
  return bytes;
}

std::size_t PageHeap::bytes_of(const void* data) {
  const std::lock_guard lock(mutex_);
  return ranges_.bytes_at(offset_of(data));
}

std::size_t PageHeap::peak() const { return std::max(peak_, previous_peak_); }

std::size_t PageHeap::allowed() const {
  if (limit_) return *limit_;
  return std::max(kAlwaysKept, peak() + peak() / part_kept_ - ranges_.used());
}

// The peak is forgotten after two windows, so that one large evaluation does not keep its memory to the end of the run;
// the windows are long, so that fetching the memory again costs little beside what was taken. Tensors that live for
// random times leave gaps between them. Then releasing all but an eighth, and fetching it again, costs more than the
// memory is worth, so a quarter is kept.
bool PageHeap::ends_window(std::size_t bytes) {
  peak_ = std::max(peak_, ranges_.used());
  taken_ += bytes;
  if (taken_ / kWindow < peak()) return false;
  if (trimmed_ - trimmed_before_ > taken_ / kTrimmed) part_kept_ = kLargePart;
  previous_peak_ = std::exchange(peak_, ranges_.used());
  taken_ = 0;
  return true;
}

// Unlocks while the system works, so that other threads may use the heap.
std::size_t PageHeap::release_beyond(std::size_t cached, std::unique_lock<std::mutex>& lock) {
  if (ranges_.cached() <= cached) return 0;
  const std::vector<RangeCache::Range> dropped = ranges_.drop(cached, grain_);
  lock.unlock();
  std::size_t released = 0;
  for (const auto& [offset, bytes] : dropped) {
    space_.release(offset, bytes);
    released += bytes;
  }
  lock.lock();
  ranges_.released(dropped);
  return released;
}

void PageHeap::set_huge_pages(bool on) {
  const std::lock_guard lock(mutex_);
  space_.set_huge_pages(on);
  grain_ = on ? AddressSpace::kHugePage : kPage;
}

void PageHeap::set_limit(std::optional<std::size_t> cached) {
  std::unique_lock lock(mutex_);
  limit_ = cached;
  release_beyond(allowed(), lock);
}

void PageHeap::release_all() {
  std::unique_lock lock(mutex_);
  release_beyond(0, lock);
}

std::size_t PageHeap::trimmed() {
  const std::lock_guard lock(mutex_);
  return trimmed_;
}

CpuMemory PageHeap::memory() {
  const std::lock_guard lock(mutex_);
  return {.used = ranges_.used(), .cached = ranges_.cached()};
}

}  // namespace composer::util
