#include "composer/util/own_descriptor.h"

#include <csignal>
#include <fcntl.h>
#include <string>
#include <unistd.h>

#include <sys/time.h>
#include <sys/wait.h>

#include "composer/util/dying_process.h"
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

TEST_CASE("A process is dying once it is a zombie, was sent SIGKILL, or has no memory any more") {
  const auto status = [](const std::string& state, const std::string& size, const std::string& own,
                         const std::string& shared) {
    return "Name:\tx\nState:\t" + state + "\n" + size + "SigPnd:\t" + own + "\nShdPnd:\t" + shared + "\n";
  };
  const std::string none = "0000000000000000", size = "VmSize:\t 100 kB\n";
  CHECK_FALSE(util::is_status_of_dying(status("S (sleeping)", size, none, none)));
  CHECK_FALSE(util::is_status_of_dying(status("T (stopped)", size, none, "0000000000004000")));  // SIGTERM
  CHECK(util::is_status_of_dying(status("R (running)", size, "0000000000000100", none)));
  CHECK(util::is_status_of_dying(status("R (running)", size, none, "0000000000000100")));
  CHECK(util::is_status_of_dying(status("R (running)", "", none, none)));
  CHECK(util::is_status_of_dying(status("Z (zombie)", "", none, none)));
  CHECK_FALSE(util::is_dying(::getpid()));
}

}  // namespace
}  // namespace composer::own_descriptor_test
