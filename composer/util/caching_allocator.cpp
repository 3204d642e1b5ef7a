#include "composer/util/caching_allocator.h"

#include <algorithm>
#include <cstring>
#include <malloc.h>
#include <pthread.h>

#include <c10/util/Exception.h>

namespace composer::util {
namespace {

constexpr std::size_t kSmallLimit = std::size_t{64} << 20;

}  // namespace

CachingAllocator::CachingAllocator() { set_limit(std::nullopt); }

CachingAllocator& CachingAllocator::instance() {
  static CachingAllocator* const allocator = [] {
    auto* made = new CachingAllocator();
    const auto unlock = [] { instance().unlock(); };
    pthread_atfork([] { instance().lock(); }, unlock, unlock);
    return made;
  }();
  return *allocator;
}

void CachingAllocator::lock() {
  large_.lock();
  small_.lock();
}

void CachingAllocator::unlock() {
  small_.unlock();
  large_.unlock();
}

void* CachingAllocator::take(std::size_t bytes) {
  const auto try_it = [&] { return bytes <= BlockLists::kLargest ? small_.take(bytes) : large_.take(bytes); };
  void* data = try_it();
  if (data == nullptr) {
    release_all();
    data = try_it();
  }
  TORCH_CHECK_WITH(OutOfMemoryError, data != nullptr, "CachingAllocator: no memory for a tensor of ", bytes,
                   " bytes; tensors have ", memory().used);
  return data;
}

std::size_t CachingAllocator::bytes_of(const void* data) {
  return large_.owns(data) ? large_.bytes_of(data) : BlockLists::bytes_of(data);
}

void CachingAllocator::give(void* data) {
  if (c10::memoryProfilingEnabled()) report(data, -static_cast<std::int64_t>(bytes_of(data)));
  if (large_.owns(data)) {
    large_.give(data);
    return;
  }
  small_.give(data);
  if (small_.roughly_cached() > small_limit_.load(std::memory_order_relaxed)) small_.release_all();
}

c10::DataPtr CachingAllocator::allocate(std::size_t bytes) {
  void* data = nullptr;
  if (bytes > 0) {
    data = take(bytes);
    if (c10::memoryProfilingEnabled()) report(data, static_cast<std::int64_t>(bytes_of(data)));
  }
  return {data, data, raw_deleter(), c10::Device(c10::kCPU)};
}

c10::DeleterFnPtr CachingAllocator::raw_deleter() const {
  return [](void* data) {
    if (data != nullptr) instance().give(data);
  };
}

void CachingAllocator::copy_data(void* to, const void* from, std::size_t bytes) const { std::memcpy(to, from, bytes); }

void CachingAllocator::set_limit(std::optional<std::size_t> cached) {
  const std::size_t small = std::min(kSmallLimit, cached.value_or(kSmallLimit) / 2);
  small_limit_ = static_cast<std::int64_t>(small);
  if (small_.roughly_cached() > small_limit_) small_.release_all();
  large_.set_limit(cached ? std::optional(*cached - small) : std::nullopt);
}

// The C library keeps small blocks that were freed in its heap until malloc_trim() is called.
void CachingAllocator::release_all() {
  small_.release_all();
  large_.release_all();
  ::malloc_trim(0);
}

void CachingAllocator::report(void* data, std::int64_t bytes) {
  const auto [used, cached] = memory();
  c10::reportMemoryUsageToProfiler(data, bytes, used, used + cached, c10::Device(c10::kCPU));
}

CpuMemory CachingAllocator::memory() {
  const CpuMemory small = small_.memory(), large = large_.memory();
  return {.used = small.used + large.used, .cached = small.cached + large.cached};
}

}  // namespace composer::util
