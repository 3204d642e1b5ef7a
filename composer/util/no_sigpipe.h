#pragma once
#include <csignal>

namespace composer::util {

// While it lives, a write of this thread to a pipe without a reader fails with EPIPE and does not end the process.
// Other threads and the program's own signal handler are not affected.
class NoSigpipe {
 public:
  NoSigpipe();
  ~NoSigpipe();
  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;

 private:
  bool blocked_ = false;  // whether this scope has blocked SIGPIPE
  sigset_t before_{};
};

}  // namespace composer::util
