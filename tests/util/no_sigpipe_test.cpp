#include "composer/util/no_sigpipe.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <thread>
#include <unistd.h>

#include "tests/support/doctest.h"
#include "tests/support/in_child.h"

namespace composer::util::no_sigpipe_test {
namespace {

using test::status_of_child;

// The end of a pipe to write to, that nobody reads.
int closed_pipe() {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) ::_exit(8);
  ::close(ends[0]);
  return ends[1];
}

bool fails_with_epipe(int pipe) { return ::write(pipe, "x", 1) == -1 && errno == EPIPE; }

bool is_blocked() {
  sigset_t set{};
  pthread_sigmask(SIG_BLOCK, nullptr, &set);
  return sigismember(&set, SIGPIPE) == 1;
}

TEST_CASE("Within NoSigpipe a closed pipe is an error of write(), and after it kills as before") {
  const int status = status_of_child([] {
    std::signal(SIGPIPE, SIG_DFL);
    const int pipe = closed_pipe();
    for (int i = 0; i < 3; ++i) {
      const NoSigpipe no_sigpipe;
      if (!fails_with_epipe(pipe)) ::_exit(1);
    }
    if (is_blocked()) ::_exit(2);
    if (::write(pipe, "x", 1) != 0) ::_exit(3);
    ::_exit(3);
  });
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGPIPE);
}

TEST_CASE("NoSigpipe keeps errno, nests, and leaves a signal alone that was pending before it") {
  const int status = status_of_child([] {
    std::signal(SIGPIPE, SIG_DFL);
    const int pipe = closed_pipe();
    sigset_t set{};
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    {
      const NoSigpipe outer;
      {
        const NoSigpipe inner;
        if (!fails_with_epipe(pipe)) ::_exit(1);
      }
      if (errno != EPIPE) ::_exit(2);
      if (!is_blocked()) ::_exit(3);
    }
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
    std::raise(SIGPIPE);  // the program's own
    {
      const NoSigpipe no_sigpipe;
      if (!fails_with_epipe(pipe)) ::_exit(4);
    }
    sigset_t pending{};
    sigpending(&pending);
    if (sigismember(&pending, SIGPIPE) != 1 || !is_blocked()) ::_exit(5);
  });
  CHECK(test::ended_well(status));
}

TEST_CASE("NoSigpipe of one thread does not shield another") {
  const int status = status_of_child([] {
    std::signal(SIGPIPE, SIG_DFL);
    const NoSigpipe no_sigpipe;
    std::thread([] {
      sigset_t set{};
      sigemptyset(&set);
      sigaddset(&set, SIGPIPE);
      pthread_sigmask(SIG_UNBLOCK, &set, nullptr);  // inherited from whoever starts a thread
      if (::write(closed_pipe(), "x", 1) != 0) ::_exit(3);
    }).join();
  });
  CHECK(WIFSIGNALED(status));
}

}  // namespace
}  // namespace composer::util::no_sigpipe_test
