#include "composer/cli/launch_signals.h"

#include <array>
#include <cerrno>
#include <system_error>
#include <unistd.h>

#include <sys/signalfd.h>

#include "composer/core/error.h"

namespace composer::cli {
namespace {

constexpr std::array kPassedOn = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT};

}  // namespace

SignalQueue::SignalQueue() {
  sigset_t taken;
  sigemptyset(&taken);
  sigaddset(&taken, SIGCHLD);
  for (const int number : kPassedOn) {
    struct sigaction action {};
    ::sigaction(number, nullptr, &action);
    // A blocked signal would be queued even if it is ignored.
    if (action.sa_handler != SIG_IGN) sigaddset(&taken, number);
  }
  sigset_t blocked = taken;
  sigaddset(&blocked, SIGTTOU);  // needed to take the terminal back from the background
  ::sigprocmask(SIG_BLOCK, &blocked, &before_);
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  ::sigaction(SIGCHLD, &action, &child_before_);
  descriptor_ = ::signalfd(-1, &taken, SFD_NONBLOCK | SFD_CLOEXEC);
  if (descriptor_ < 0) throw Error("launch: cannot wait for signals: ", std::generic_category().message(errno));
}

SignalQueue::~SignalQueue() {
  take();  // drops signals that arrived after the end of the ranks
  ::close(descriptor_);
  ::sigaction(SIGCHLD, &child_before_, nullptr);
  ::sigprocmask(SIG_SETMASK, &before_, nullptr);
}

std::vector<int> SignalQueue::take() {
  std::vector<int> numbers;
  for (signalfd_siginfo info{}; ::read(descriptor_, &info, sizeof info) == sizeof info;)
    numbers.push_back(static_cast<int>(info.ssi_signo));
  return numbers;
}

}  // namespace composer::cli
