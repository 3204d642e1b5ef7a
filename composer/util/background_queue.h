#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <pthread.h>
#include <span>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "composer/core/error.h"

namespace composer::util {

namespace detail {

inline std::atomic<std::uint64_t> forks{0};

// Differs in a forked process. getpid() would be a system call for each message.
inline std::uint64_t this_process() {
  static const bool is_counted = ::pthread_atfork(nullptr, nullptr, [] { ++forks; }) == 0;
  return is_counted ? forks.load(std::memory_order_relaxed) : static_cast<std::uint64_t>(::getpid());
}

}  // namespace detail

// What send() does while the queue is full.
enum class FullQueue : std::uint8_t { WAIT, DROP_NEWEST, DROP_OLDEST };

// A background thread that handles messages in the order in which they were sent, many at a time, so that the sender
// does not wait for a disk or a network. No lock is held while messages are handled. One thread sends.
//
// If the handler throws, the thread's work ends: later messages are dropped, and every later send() and sync() throws
// that error. A forked process does not have the thread: send() throws there, and the other functions do nothing.
template <class Message>
class BackgroundQueue {
 public:
  using Handler = std::function<void(std::span<Message>)>;
  using Duration = std::chrono::duration<double>;
  using Clock = std::chrono::steady_clock;

  struct Options {
    Duration delay{1};             // >= 0; longest time that a message waits before it is handled; 4096 messages, or
                                   // half of the capacity, do not wait longer
    std::size_t capacity = 65536;  // >= 1; messages that wait. Another `capacity` of them may be being handled
    FullQueue when_full = FullQueue::WAIT;
  };

  // The thread calls `finish` after the last message, unless the handler threw; exceptions of `finish` are ignored. The
  // thread keeps both functions alive, even longer than the queue if end() gave up.
  BackgroundQueue(
      Handler handle, Options options, std::function<void()> finish = [] {})
      : all_(std::make_shared<Shared>(std::move(handle), std::move(finish), options)) {
    all_->waiting.reserve(std::min<std::size_t>(options.capacity, 64));
    all_->thread = std::thread([all = all_] { all->run(); });
  }
  ~BackgroundQueue() { end({}); }  // waits until everything was handled
  BackgroundQueue(const BackgroundQueue&) = delete;
  BackgroundQueue& operator=(const BackgroundQueue&) = delete;

  void send(Message message) {
    if (!is_own_process())
      throw Error("what was opened before a fork() cannot be written to after it; open it in the child");
    Shared& all = *all_;
    std::unique_lock lock(all.mutex);
    if (all.waiting.size() >= all.options.capacity) {
      all.hurry = true;
      all.work.notify_one();
      if (all.options.when_full == FullQueue::WAIT)
        all.handled.wait(lock, [&all] { return all.waiting.size() < all.options.capacity; });
    }
    if (all.error) std::rethrow_exception(all.error);
    if (all.waiting.size() < all.options.capacity) {
      all.waiting.push_back(std::move(message));
      ++all.sent;
      const bool is_enough = all.waiting.size() == std::min(Shared::kMany, (all.options.capacity + 1) / 2);
      if (is_enough) all.hurry = true;
      const bool is_first = all.waiting.size() == 1;  // this message is the first to wait; the delay begins with it
      lock.unlock();
      if (is_first || is_enough) all.work.notify_one();
      return;
    }
    ++dropped_;
    if (all.options.when_full == FullQueue::DROP_NEWEST) return;
    std::swap(all.waiting[all.oldest], message);  // the dropped one is destroyed after the lock is released
    all.oldest = (all.oldest + 1) % all.waiting.size();
    lock.unlock();
  }

  // The number of messages dropped because the queue was full.
  std::uint64_t dropped() const { return dropped_; }
  // The number of messages that were not handled when end() gave up.
  std::uint64_t abandoned() const { return abandoned_; }

  // Begins to handle the waiting messages, and returns at once. If messages were handled less than `pause` ago,
  // handling begins once that much time has passed, so that frequent calls do not wake the thread each time.
  void hurry(Duration pause = {}) {
    if (!is_own_process()) return;
    const std::lock_guard lock(all_->mutex);
    const auto from = all_->taken_at + std::chrono::duration_cast<Clock::duration>(pause);
    if (all_->waiting.empty() || from >= all_->due) return;
    all_->due = from;
    all_->work.notify_one();
  }

  // Returns true once everything that was sent is handled, and false after `limit` (forever if unset).
  bool sync(std::optional<Duration> limit = {}) {
    if (!is_own_process()) return true;
    std::unique_lock lock(all_->mutex);
    all_->hurry = true;
    all_->work.notify_one();
    const bool handled = all_->wait(lock, limit, [this] { return all_->done == all_->sent; });
    if (all_->error) std::rethrow_exception(all_->error);
    return handled;
  }

  // Ends the thread after everything was handled. Returns false if that takes longer than `limit` (unset: no limit).
  // The thread then ends as soon as its current call of the handler returns, and drops the rest. Nothing may be sent
  // afterwards.
  bool end(std::optional<Duration> limit) {
    if (all_ == nullptr) return true;
    const std::shared_ptr<Shared> all = std::move(all_);
    if (!is_own_process()) {
      new std::shared_ptr<Shared>(all);  // leaked: a lock that the thread held when it vanished stays held
      return true;
    }
    std::unique_lock lock(all->mutex);
    all->ending = all->hurry = true;
    all->work.notify_one();
    const bool ended = all->wait(lock, limit, [&all] { return all->ended; });
    all->abandoned = !ended;
    abandoned_ = all->sent - all->done;
    lock.unlock();
    if (ended)
      all->thread.join();
    else
      all->thread.detach();
    return ended;
  }

 private:
  struct Shared {
    Shared(Handler handler, std::function<void()> at_end, Options given)
        : handle(std::move(handler)), finish(std::move(at_end)), options(given) {}

    void run() {
      std::vector<Message> taken;
      std::unique_lock lock(mutex);
      for (;;) {
        work.wait(lock, [this] { return !waiting.empty() || ending; });
        if (waiting.empty() || abandoned) break;
        due = std::min(due, Clock::now() + std::chrono::duration_cast<Clock::duration>(options.delay));
        while (!hurry && Clock::now() < due) work.wait_until(lock, due);
        hurry = ending;
        due = Clock::time_point::max();
        taken_at = Clock::now();
        taken.swap(waiting);
        const std::size_t first = std::exchange(oldest, 0);
        handled.notify_all();  // there is room again
        const bool failed = error != nullptr;
        lock.unlock();
        std::rotate(taken.begin(), taken.begin() + static_cast<std::ptrdiff_t>(first), taken.end());
        std::exception_ptr thrown = failed ? nullptr : call([&] { handle(taken); });
        const std::size_t count = taken.size();
        taken.clear();  // without the lock, which the sender needs
        lock.lock();
        if (thrown) error = std::move(thrown);
        done += count;
        handled.notify_all();
      }
      if (!error && !abandoned) {
        lock.unlock();
        call(finish);
        lock.lock();
      }
      ended = true;
      handled.notify_all();
    }

    template <class Call>
    static std::exception_ptr call(const Call& function) {
      try {
        function();
        return nullptr;
      } catch (...) {
        return std::current_exception();
      }
    }

    template <class Condition>
    bool wait(std::unique_lock<std::mutex>& lock, std::optional<Duration> limit, const Condition& condition) {
      if (limit) return handled.wait_for(lock, std::min(*limit, kLongestLimit), condition);
      handled.wait(lock, condition);
      return true;
    }

    static constexpr std::size_t kMany = 4096;
    static constexpr Duration kLongestLimit{1e8};  // 3 years; clocks cannot count as long as infinity
    const Handler handle;                          // called by the thread only
    const std::function<void()> finish;
    const Options options;

    std::mutex mutex;  // guards all of the following except `thread`
    std::condition_variable work, handled;
    std::vector<Message> waiting;
    std::size_t oldest = 0;                                 // index of the first message in `waiting`
    Clock::time_point due = Clock::time_point::max();       // when the messages that wait are handled at the latest
    Clock::time_point taken_at = Clock::time_point::min();  // when messages were last taken from `waiting`
    std::uint64_t sent = 0, done = 0;
    bool hurry = false, ending = false, abandoned = false, ended = false;
    std::exception_ptr error;
    std::thread thread;
  };

  bool is_own_process() const { return detail::this_process() == process_; }

  const std::uint64_t process_ = detail::this_process();
  std::uint64_t dropped_ = 0, abandoned_ = 0;
  std::shared_ptr<Shared> all_;  // null after end()
};

}  // namespace composer::util
