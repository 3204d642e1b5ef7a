#include "composer/core/stop.h"

#include <atomic>
#include <mutex>

namespace composer {

struct Stop::Request {
  std::atomic<bool> asked{false};
  std::mutex mutex;  // of what follows
  std::string why;
  Kind kind = PAUSED;
  bool answered = false;

  void forget() {
    asked = false;
    why.clear();
    kind = PAUSED;
    answered = false;
  }
};

Stop::Stop() : request_(std::make_shared<Request>()) {}

void Stop::ask(const std::string& why, Kind kind) const {
  const std::lock_guard lock(request_->mutex);
  if (request_->answered) request_->forget();
  if (request_->asked && kind <= request_->kind) return;
  request_->why = why;
  request_->kind = kind;
  request_->asked = true;
}

bool Stop::asked() const { return request_->asked.load(std::memory_order_relaxed); }

std::string Stop::why() const {
  const std::lock_guard lock(request_->mutex);
  return request_->why;
}

Stop::Kind Stop::kind() const {
  const std::lock_guard lock(request_->mutex);
  return request_->kind;
}

void Stop::clear() const {
  const std::lock_guard lock(request_->mutex);
  request_->forget();
}

void Stop::answer() const {
  const std::lock_guard lock(request_->mutex);
  request_->answered = request_->asked;
}

void Stop::clear_answered() const {
  const std::lock_guard lock(request_->mutex);
  if (request_->answered) request_->forget();
}

bool Stop::pending() const {
  const std::lock_guard lock(request_->mutex);
  return request_->asked && !request_->answered;
}

}  // namespace composer
