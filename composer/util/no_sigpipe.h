#pragma once
#include <csignal>

namespace composer::util {

// While it lives, a write of this thread to a pipe that nobody reads fails with EPIPE and does not end the process.
// Neither other threads nor the program's own handler notice anything.
class NoSigpipe {
 public:
  NoSigpipe();
  ~NoSigpipe();
  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;

 private:
  bool blocked_ = false;  // by this scope
  sigset_t before_{};
};

}  // namespace composer::util
