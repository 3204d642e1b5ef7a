#include "composer/trainer/signals.h"

#include <atomic>
#include <cstdint>
#include <ctime>

namespace composer {
namespace {

// A signal handler can reach nothing but a global.
std::atomic<int> pending_signal{0};
std::atomic<std::int64_t> arrived{0};  // nanoseconds
std::atomic<int> scopes{0};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<std::int64_t>::is_always_lock_free);

std::int64_t now() {  // may be called by a signal handler
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

void note(int signal) {
  arrived.store(now(), std::memory_order_relaxed);
  pending_signal.store(signal, std::memory_order_relaxed);
}

}  // namespace

SignalScope::SignalScope(bool active) : active_(active) {
  if (scopes.fetch_add(active_ ? 1 : 0) != 0) return;
  pending_signal = 0;
  if (!active_) return;
  install(SIGINT, int_before_, int_installed_);
  install(SIGTERM, term_before_, term_installed_);
}

SignalScope::~SignalScope() {
  if (int_installed_) sigaction(SIGINT, &int_before_, nullptr);
  if (term_installed_) sigaction(SIGTERM, &term_before_, nullptr);
  if (active_) scopes.fetch_sub(1);
}

void SignalScope::install(int signal, struct sigaction& before, bool& installed) {
  if (sigaction(signal, nullptr, &before) != 0 || before.sa_handler != SIG_DFL) return;
  struct sigaction action {};
  action.sa_handler = note;
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // the second one does what it did before
  sigemptyset(&action.sa_mask);
  installed = sigaction(signal, &action, nullptr) == 0;
}

Seconds SignalScope::since() { return Seconds(static_cast<double>(now() - arrived.load()) * 1e-9); }
int SignalScope::pending() { return pending_signal.load(std::memory_order_relaxed); }

}  // namespace composer
