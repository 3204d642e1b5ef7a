#include "composer/core/stop.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace composer {

struct Stop::Request {
  struct Ask {
    std::string why;
    Kind kind;
    std::thread::id by;
    bool seen = false;
  };

  std::atomic<bool> asked{false};
  std::mutex mutex;       // guards the members below
  std::vector<Ask> asks;  // the strongest request of each thread, in the order of arrival
  bool answered = false;

  void forget() {
    asked = false;
    asks.clear();
    answered = false;
  }
  // The request that counts. Requires that there is one.
  Ask& first() { return *std::ranges::max_element(asks, {}, &Ask::kind); }
};

Stop::Stop() : request_(std::make_shared<Request>()) {}

void Stop::ask(const std::string& why, Kind kind) const {
  const std::lock_guard lock(request_->mutex);
  if (request_->answered) request_->forget();
  const auto by = std::this_thread::get_id();
  const auto is_same = [&](const Request::Ask& other) { return other.by == by && !other.seen; };
  const auto same = std::ranges::find_if(request_->asks, is_same);
  if (same != request_->asks.end()) {
    if (kind <= same->kind) return;
    request_->asks.erase(same);
  }
  request_->asks.push_back({.why = why, .kind = kind, .by = by});
  request_->asked = true;
}

bool Stop::asked() const { return request_->asked.load(std::memory_order_relaxed); }

std::string Stop::why() const {
  const std::lock_guard lock(request_->mutex);
  return request_->asks.empty() ? "" : request_->first().why;
}

Stop::Kind Stop::kind() const {
  const std::lock_guard lock(request_->mutex);
  return request_->asks.empty() ? PAUSED : request_->first().kind;
}

void Stop::clear() const {
  const std::lock_guard lock(request_->mutex);
  request_->forget();
}

void Stop::see() const {
  const std::lock_guard lock(request_->mutex);
  if (request_->asks.empty()) return;
  Request::Ask first = std::move(request_->first());
  first.seen = true;
  request_->asks.clear();
  request_->asks.push_back(std::move(first));
}

void Stop::answer() const {
  const std::lock_guard lock(request_->mutex);
  std::vector<Request::Ask> left;
  std::ranges::copy_if(request_->asks, std::back_inserter(left),
                       [](const Request::Ask& ask) { return !ask.seen && ask.by != std::this_thread::get_id(); });
  if (left.empty())
    request_->answered = request_->asked;
  else
    request_->asks = std::move(left);
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
