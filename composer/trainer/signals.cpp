#include "composer/trainer/signals.h"

#include <atomic>

namespace composer {
namespace {

// A signal handler can reach nothing but a global.
std::atomic<int> pending_signal{0};
std::atomic<int> scopes{0};
static_assert(std::atomic<int>::is_always_lock_free);

void note(int signal) { pending_signal.store(signal, std::memory_order_relaxed); }

}  // namespace

SignalScope::SignalScope(bool active) : active_(active) {
  if (!active_ || scopes.fetch_add(1) != 0) return;
  pending_signal = 0;
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

int SignalScope::pending() { return pending_signal.load(std::memory_order_relaxed); }

}  // namespace composer
