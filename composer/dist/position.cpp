#include "composer/dist/position.h"

#include "composer/core/error.h"

namespace composer::dist {

void Position::set(std::string_view event, std::int64_t epoch, std::int64_t batch) noexcept {
  const std::uint64_t version = version_.load(std::memory_order_relaxed);
  version_.store(version + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  event_.store(event.data(), std::memory_order_relaxed);  // NOLINT(bugprone-suspicious-stringview-data-usage): length_
  length_.store(event.size(), std::memory_order_relaxed);
  epoch_.store(epoch, std::memory_order_relaxed);
  batch_.store(batch, std::memory_order_relaxed);
  version_.store(version + 2, std::memory_order_release);
}

std::string Position::text() const {
  for (;;) {
    const std::uint64_t before = version_.load(std::memory_order_acquire);
    const std::string_view event(event_.load(std::memory_order_relaxed), length_.load(std::memory_order_relaxed));
    const std::int64_t epoch = epoch_.load(std::memory_order_relaxed), batch = batch_.load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (before % 2 == 1 || version_.load(std::memory_order_relaxed) != before) continue;
    return event.empty() ? "" : join(event, ", epoch ", epoch, ", batch ", batch);
  }
}

}  // namespace composer::dist
