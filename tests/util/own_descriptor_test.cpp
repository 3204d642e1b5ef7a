#include "composer/util/own_descriptor.h"

#include <csignal>
#include <fcntl.h>
#include <unistd.h>

#include <sys/time.h>
#include <sys/wait.h>

#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/in_child.h"

namespace composer::own_descriptor_test {
namespace {

volatile std::sig_atomic_t forks = 0;

// As a crash reporter does.
void fork_here(int) {
  if (const pid_t child = ::fork(); child == 0)
    ::_exit(0);
  else
    ::waitpid(child, nullptr, 0);
  forks = forks + 1;
}

TEST_CASE("A handler of a signal that forks is not waited for, wherever the signal comes") {
  const test::Folder folder;
  const int status = test::status_of_child([&] {
    constexpr int kForks = 8;
    ::signal(SIGPROF, fork_here);
    const itimerval often{.it_interval = {.tv_sec = 0, .tv_usec = 3000}, .it_value = {.tv_sec = 0, .tv_usec = 3000}};
    ::setitimer(ITIMER_PROF, &often, nullptr);
    util::OwnDescriptor descriptor;
    while (forks < kForks) descriptor.open(folder / "log", O_RDWR | O_CREAT), descriptor.close();
  });
  CHECK(test::ended_well(status));
}

TEST_CASE("A forked child has no descriptor of its parent, and opens others") {
  const test::Folder folder;
  util::OwnDescriptor of_parent;
  REQUIRE(of_parent.open(folder / "log", O_RDWR | O_CREAT));
  REQUIRE(of_parent.try_lock());
  const int status = test::status_of_child([&] {
    util::OwnDescriptor own;
    if (of_parent.is_open() || !own.open(folder / "other", O_RDWR | O_CREAT)) ::_exit(1);
  });
  CHECK(test::ended_well(status));
  CHECK(of_parent.is_open());
}

}  // namespace
}  // namespace composer::own_descriptor_test
