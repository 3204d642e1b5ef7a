#pragma once
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <span>
#include <thread>
#include <utility>
#include <vector>

namespace composer::util {

// A thread of its own that handles messages in the order in which they were sent, many at a time, so that who sends
// them never waits for a disk. What the handler throws ends its work: later messages are dropped, and every send() and
// sync() from then on throws it. One thread sends.
template <class Message>
class BackgroundQueue {
 public:
  using Handler = std::function<void(std::span<Message>)>;

  // Messages wait no longer than `delay` before they are handled. At most `capacity` of them wait: then send() waits.
  BackgroundQueue(Handler handle, std::chrono::duration<double> delay, std::size_t capacity)
      : handle_(std::move(handle)), delay_(delay), capacity_(capacity), thread_([this] { run(); }) {}
  ~BackgroundQueue() {  // after everything was handled
    {
      const std::lock_guard lock(mutex_);
      ending_ = hurry_ = true;
    }
    work_.notify_one();
    thread_.join();
  }
  BackgroundQueue(const BackgroundQueue&) = delete;
  BackgroundQueue& operator=(const BackgroundQueue&) = delete;

  void send(Message message) {
    std::unique_lock lock(mutex_);
    if (waiting_.size() >= capacity_) {
      hurry_ = true;
      work_.notify_one();
      handled_.wait(lock, [this] { return waiting_.size() < capacity_; });
    }
    if (error_) std::rethrow_exception(error_);
    waiting_.push_back(std::move(message));
    ++sent_;
    if (waiting_.size() == 1) work_.notify_one();  // it now begins to wait for more
  }

  // Begins to handle what waits, without waiting for the end of it.
  void hurry() {
    const std::lock_guard lock(mutex_);
    hurry_ = true;
    work_.notify_one();
  }

  // Returns when everything that was sent is handled.
  void sync() {
    std::unique_lock lock(mutex_);
    hurry_ = true;
    work_.notify_one();
    handled_.wait(lock, [this] { return done_ == sent_; });
    if (error_) std::rethrow_exception(error_);
  }

 private:
  void run() {
    std::vector<Message> taken;
    std::unique_lock lock(mutex_);
    for (;;) {
      work_.wait(lock, [this] { return !waiting_.empty() || ending_; });
      if (waiting_.empty()) return;
      work_.wait_for(lock, delay_, [this] { return hurry_; });
      hurry_ = ending_;
      taken.swap(waiting_);
      const bool failed = error_ != nullptr;
      lock.unlock();
      std::exception_ptr error = failed ? nullptr : handle(taken);
      const std::size_t count = taken.size();
      taken.clear();
      lock.lock();
      if (error) error_ = std::move(error);
      done_ += count;
      handled_.notify_all();
    }
  }

  std::exception_ptr handle(std::vector<Message>& messages) {
    try {
      handle_(messages);
      return nullptr;
    } catch (...) {
      return std::current_exception();
    }
  }

  const Handler handle_;  // called by thread_ only
  const std::chrono::duration<double> delay_;
  const std::size_t capacity_;

  std::mutex mutex_;  // of everything below but thread_
  std::condition_variable work_, handled_;
  std::vector<Message> waiting_;
  std::uint64_t sent_ = 0, done_ = 0;
  bool hurry_ = false, ending_ = false;
  std::exception_ptr error_;
  std::thread thread_;  // last: runs as soon as it is made
};

}  // namespace composer::util
