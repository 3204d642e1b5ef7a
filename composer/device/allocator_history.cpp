#include "composer/device/allocator_history.h"

#include <exception>
#include <optional>

namespace composer {

class SharedHistory::User final : public AllocatorHistory {
 public:
  explicit User(SharedHistory& all) : all_(all) {}
  ~User() override {
    try {
      stop();
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): who wants to know calls stop()
    }
  }
  User(const User&) = delete;
  User& operator=(const User&) = delete;

  void start(std::int64_t max_entries) override {
    const std::lock_guard lock(all_.mutex_);
    if (mine_) return;
    if (all_.entries_.empty() || *all_.entries_.rbegin() < max_entries) all_.history_->start(max_entries);
    mine_ = all_.entries_.insert(max_entries);
  }
  std::string snapshot() override {
    const std::lock_guard lock(all_.mutex_);
    return all_.history_->snapshot();
  }
  void stop() override {
    const std::lock_guard lock(all_.mutex_);
    if (!mine_) return;
    all_.entries_.erase(*mine_);
    mine_.reset();
    if (all_.entries_.empty()) all_.history_->stop();
  }

 private:
  SharedHistory& all_;
  std::optional<std::multiset<std::int64_t>::iterator> mine_;
};

std::unique_ptr<AllocatorHistory> SharedHistory::user() { return std::make_unique<User>(*this); }

}  // namespace composer
