#pragma once
#include <csignal>
#include <functional>
#include <unistd.h>

#include <sys/wait.h>

#include "tests/support/doctest.h"

namespace composer::test {

// A process calls `hold`, which calls what it gets while it has locks: then the process is killed, and a child that it
// has forked lives on while `check` is called.
inline void with_child_left_behind(const std::function<void(const std::function<void()>& be_killed)>& hold,
                                   const std::function<void()>& check) {
  int ready[2], ends[2];
  REQUIRE(::pipe(ready) == 0);
  REQUIRE(::pipe(ends) == 0);
  const pid_t owner = ::fork();
  if (owner == 0) {
    ::close(ends[1]);
    hold([&] {
      if (::fork() == 0) {
        char byte = 'x';
        ::_exit(::write(ready[1], &byte, 1) == 1 && ::read(ends[0], &byte, 1) == 0 ? 0 : 1);
      }
      for (;;) ::pause();
    });
    ::_exit(1);
  }
  ::close(ready[1]);
  char byte = 0;
  const bool holds = ::read(ready[0], &byte, 1) == 1;
  ::kill(owner, SIGKILL);
  ::waitpid(owner, nullptr, 0);
  REQUIRE(holds);
  check();
  for (const int end : {ready[0], ends[0], ends[1]}) ::close(end);
}

}  // namespace composer::test
