#include "composer/util/no_sigpipe.h"

#include <cerrno>
#include <ctime>
#include <pthread.h>

namespace composer::util {
namespace {

sigset_t just_sigpipe() {
  sigset_t set{};
  sigemptyset(&set);
  sigaddset(&set, SIGPIPE);
  return set;
}

bool is_pending() {
  sigset_t pending{};
  return sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 1;
}

}  // namespace

// A SIGPIPE that is pending already belongs to other code, and may stay pending: another one raised by a write then
// changes nothing.
NoSigpipe::NoSigpipe() {
  const sigset_t set = just_sigpipe();
  blocked_ = !is_pending() && pthread_sigmask(SIG_BLOCK, &set, &before_) == 0;
}

NoSigpipe::~NoSigpipe() {
  if (!blocked_) return;
  const int error = errno;  // errno of the write
  const sigset_t set = just_sigpipe();
  const timespec at_once{};
  if (is_pending())
    while (sigtimedwait(&set, nullptr, &at_once) < 0 && errno == EINTR) {
    }
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  errno = error;
}

}  // namespace composer::util
