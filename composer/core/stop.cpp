#include "composer/core/stop.h"

#include <atomic>
#include <mutex>

namespace composer {

struct Stop::Request {
  std::atomic<bool> asked{false};
  std::mutex mutex;
  std::string why;  // guarded by mutex
};

Stop::Stop() : request_(std::make_shared<Request>()) {}

void Stop::ask(const std::string& why) const {
  const std::lock_guard lock(request_->mutex);
  if (!request_->asked) request_->why = why;
  request_->asked = true;
}

bool Stop::asked() const { return request_->asked.load(std::memory_order_relaxed); }

std::string Stop::why() const {
  const std::lock_guard lock(request_->mutex);
  return request_->why;
}

void Stop::clear() const {
  const std::lock_guard lock(request_->mutex);
  request_->asked = false;
  request_->why.clear();
}

}  // namespace composer
