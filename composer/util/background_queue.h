#pragma once
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "composer/core/error.h"

namespace composer::util {

// A background thread that handles messages in the order in which they were sent, many at a time, so that who sends
// them never waits for a disk. What the handler throws ends its work: later messages are dropped, and every send() and
// sync() from then on throws it. One thread sends. In a process that was forked from the one that made the queue there
// is no such thread: send() throws there, the rest does nothing.
template <class Message>
class BackgroundQueue {
 public:
  using Handler = std::function<void(std::span<Message>)>;

  // Messages wait no longer than `delay` before they are handled. At most `capacity` of them wait: then send() waits.
  BackgroundQueue(Handler handle, std::chrono::duration<double> delay, std::size_t capacity)
      : capacity_(capacity), all_(std::make_unique<Shared>(std::move(handle), delay)) {
    all_->thread = std::thread([all = all_.get()] { all->run(); });
  }
  ~BackgroundQueue() {  // after everything was handled
    if (!is_here()) {
      [[maybe_unused]] const Shared* leaked = all_.release();  // what the thread held when it vanished stays held
      return;
    }
    {
      const std::lock_guard lock(all_->mutex);
      all_->ending = all_->hurry = true;
    }
    all_->work.notify_one();
    all_->thread.join();
  }
  BackgroundQueue(const BackgroundQueue&) = delete;
  BackgroundQueue& operator=(const BackgroundQueue&) = delete;

  void send(Message message) {
    if (!is_here()) throw Error("what was opened before a fork() cannot be written to after it; open it in the child");
    std::unique_lock lock(all_->mutex);
    if (all_->waiting.size() >= capacity_) {
      all_->hurry = true;
      all_->work.notify_one();
      all_->handled.wait(lock, [this] { return all_->waiting.size() < capacity_; });
    }
    if (all_->error) std::rethrow_exception(all_->error);
    all_->waiting.push_back(std::move(message));
    ++all_->sent;
    if (all_->waiting.size() == 1) all_->work.notify_one();  // it now begins to wait for more
  }

  // Begins to handle what waits, without waiting for the end of it.
  void hurry() {
    if (!is_here()) return;
    const std::lock_guard lock(all_->mutex);
    all_->hurry = true;
    all_->work.notify_one();
  }

  // Returns when everything that was sent is handled.
  void sync() {
    if (!is_here()) return;
    std::unique_lock lock(all_->mutex);
    all_->hurry = true;
    all_->work.notify_one();
    all_->handled.wait(lock, [this] { return all_->done == all_->sent; });
    if (all_->error) std::rethrow_exception(all_->error);
  }

 private:
  struct Shared {
    Shared(Handler handler, std::chrono::duration<double> pause) : handle(std::move(handler)), delay(pause) {}

    void run() {
      std::vector<Message> taken;
      std::unique_lock lock(mutex);
      for (;;) {
        work.wait(lock, [this] { return !waiting.empty() || ending; });
        if (waiting.empty()) return;
        work.wait_for(lock, delay, [this] { return hurry; });
        hurry = ending;
        taken.swap(waiting);
        const bool failed = error != nullptr;
        lock.unlock();
        std::exception_ptr thrown = failed ? nullptr : call(taken);
        const std::size_t count = taken.size();
        taken.clear();
        lock.lock();
        if (thrown) error = std::move(thrown);
        done += count;
        handled.notify_all();
      }
    }

    std::exception_ptr call(std::vector<Message>& messages) {
      try {
        handle(messages);
        return nullptr;
      } catch (...) {
        return std::current_exception();
      }
    }

    const Handler handle;  // called by the thread only
    const std::chrono::duration<double> delay;

    std::mutex mutex;  // of the following but the thread
    std::condition_variable work, handled;
    std::vector<Message> waiting;
    std::uint64_t sent = 0, done = 0;
    bool hurry = false, ending = false;
    std::exception_ptr error;
    std::thread thread;
  };

  bool is_here() const { return ::getpid() == process_; }

  const std::size_t capacity_;
  const pid_t process_ = ::getpid();
  std::unique_ptr<Shared> all_;
};

}  // namespace composer::util
