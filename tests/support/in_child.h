#pragma once
#include <chrono>
#include <csignal>
#include <functional>
#include <unistd.h>

#include <sys/wait.h>

#include "tests/support/doctest.h"

namespace composer::test {

// The wait status of a forked process that runs `body` and leaves by _exit(0), or _exit(9) if `body` throws. One that
// takes longer than a minute is killed by SIGALRM, so a hang is a failed test.
inline int status_of_child(const std::function<void()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    try {
      body();
    } catch (...) {
      ::_exit(9);
    }
    ::_exit(0);
  }
  int status = -1;
  REQUIRE(child > 0);
  REQUIRE(::waitpid(child, &status, 0) == child);
  return status;
}

inline bool ended_well(int status) { return WIFEXITED(status) && WEXITSTATUS(status) == 0; }

}  // namespace composer::test
