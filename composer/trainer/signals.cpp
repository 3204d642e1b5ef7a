#include "composer/trainer/signals.h"

#include <array>
#include <csignal>
#include <ctime>
#include <mutex>

namespace composer {
namespace {

// A signal handler can access only globals. The number of signals is written last and read first.
std::atomic<std::uint64_t> count{0};
std::atomic<int> latest{0};
std::atomic<std::int64_t> arrived{0};  // nanoseconds
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<std::int64_t>::is_always_lock_free &&
              std::atomic<std::uint64_t>::is_always_lock_free);

std::int64_t now_in_nanoseconds() {  // may be called in a signal handler
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

void note(int signal) {
#if defined(__SANITIZE_THREAD__)
  std::signal(signal, SIG_DFL);  // the thread sanitizer's record of handlers ignores SA_RESETHAND
#endif
  arrived.store(now_in_nanoseconds(), std::memory_order_relaxed);
  latest.store(signal, std::memory_order_relaxed);
  count.fetch_add(1, std::memory_order_release);
}

// The handlers of the process. They are installed only where the default is set, so removing them restores the default.
class Handlers {
 public:
  void subscribe() {
    const std::lock_guard lock(mutex_);
    ++watches_;
    for (const int signal : kSignals) install(signal);
  }
  void unsubscribe() {
    const std::lock_guard lock(mutex_);
    if (--watches_ > 0) return;
    for (const int signal : kSignals) remove(signal);
  }

 private:
  static constexpr std::array kSignals = {SIGINT, SIGTERM};

  static void install(int signal) {
    struct sigaction action {};
    if (sigaction(signal, nullptr, &action) != 0 || (action.sa_flags & SA_SIGINFO) != 0 || action.sa_handler != SIG_DFL)
      return;
    action.sa_handler = note;
    // A second signal has its default effect. After the first, a read() of a loader continues.
    action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
    sigemptyset(&action.sa_mask);
    sigaction(signal, &action, nullptr);
  }

  static void remove(int signal) {
    struct sigaction action {};
    if (sigaction(signal, nullptr, &action) != 0 || (action.sa_flags & SA_SIGINFO) != 0 || action.sa_handler != note)
      return;
    action.sa_handler = SIG_DFL;
    action.sa_flags = 0;
    sigaction(signal, &action, nullptr);
  }

  std::mutex mutex_;
  int watches_ = 0;
};

Handlers& handlers() {
  static Handlers all;
  return all;
}

}  // namespace

void SignalWatch::begin() {
  end();
  noted_ = 0;
  first_ = count.load(std::memory_order_acquire);
  handlers().subscribe();
}

void SignalWatch::end() {
  if (first_.load(std::memory_order_relaxed) == kEnded) return;
  noted_ = pending();
  first_ = kEnded;
  handlers().unsubscribe();
}

int SignalWatch::pending() const {
  const std::uint64_t first = first_;
  if (first == kEnded) return noted_;
  return count.load(std::memory_order_acquire) > first ? latest.load(std::memory_order_relaxed) : 0;
}

std::optional<Seconds> SignalWatch::since() const {
  if (pending() == 0) return std::nullopt;
  return Seconds(static_cast<double>(now_in_nanoseconds() - arrived.load(std::memory_order_relaxed)) * 1e-9);
}

}  // namespace composer
