#pragma once
// What a device's allocator has done lately, for who looks for memory.
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

namespace composer {

class AllocatorHistory {
 public:
  virtual ~AllocatorHistory() = default;
  virtual void start(std::int64_t max_entries) = 0;
  virtual std::string snapshot() = 0;  // a pickle, as of torch.cuda.memory._snapshot()
  virtual void stop() = 0;
};

// One history for several who use it, also on several threads: it begins with the first start() and ends with the last
// stop() among them, and is as long as any of them wants. It outlives its users.
class SharedHistory {
 public:
  explicit SharedHistory(std::unique_ptr<AllocatorHistory> history) : history_(std::move(history)) {}
  std::unique_ptr<AllocatorHistory> user();

 private:
  class User;
  std::mutex mutex_;
  std::unique_ptr<AllocatorHistory> history_;
  std::multiset<std::int64_t> entries_;  // that those want who have started it
};

}  // namespace composer
