#pragma once
#include <csignal>

#include "composer/core/time.h"

namespace composer {

// While it lives, the first SIGINT or SIGTERM is noted instead of ending the process; the second ends it at once.
// Leaves a signal alone that the program handles or ignores itself. Of several at a time, the outermost rules.
class SignalScope {
 public:
  explicit SignalScope(bool active);
  ~SignalScope();
  SignalScope(const SignalScope&) = delete;
  SignalScope& operator=(const SignalScope&) = delete;

  static int pending();    // the signal that came, 0 if none; one atomic load
  static Seconds since();  // it came; meaningless before

 private:
  void install(int signal, struct sigaction& before, bool& installed);
  bool active_, int_installed_ = false, term_installed_ = false;
  struct sigaction int_before_ {
  }, term_before_{};
};

}  // namespace composer
