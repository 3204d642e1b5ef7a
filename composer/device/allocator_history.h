#pragma once
// The recent history of a device's allocator, for users who examine memory use.
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
  virtual std::string snapshot() = 0;  // a pickle in the format of torch.cuda.memory._snapshot()
  virtual void stop() = 0;
};

// Shares one history among several users, also on several threads. It begins with the first start() and ends with the
// last stop(), and keeps as many entries as the largest request. It outlives its users.
class SharedHistory {
 public:
  explicit SharedHistory(std::unique_ptr<AllocatorHistory> history) : history_(std::move(history)) {}
  std::unique_ptr<AllocatorHistory> user();

 private:
  class User;
  std::mutex mutex_;
  std::unique_ptr<AllocatorHistory> history_;
  std::multiset<std::int64_t> entries_;  // requested by the users that have started it
};

}  // namespace composer
