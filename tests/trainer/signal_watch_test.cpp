#include <array>
#include <atomic>
#include <csignal>
#include <fstream>
#include <pthread.h>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include "composer/trainer/signals.h"
#include "tests/support/doctest.h"
#include "tests/support/in_child.h"

namespace composer::test::signal_watch_test {
namespace {

using Handler = void (*)(int);

Handler handler_of(int signal) {
  struct sigaction now {};
  sigaction(signal, nullptr, &now);
  return now.sa_handler;
}

bool is_default(int signal) { return handler_of(signal) == SIG_DFL; }

void mine(int) {}

TEST_CASE("Handlers are there as long as any of several watches, in whatever order they begin and end") {
  SignalWatch a, b, c;
  a.begin();
  b.begin();
  a.end();
  CHECK_FALSE(is_default(SIGTERM));
  c.begin();
  b.end();
  CHECK_FALSE(is_default(SIGTERM));
  CHECK_FALSE(is_default(SIGINT));
  std::raise(SIGTERM);
  CHECK(a.pending() == 0);
  CHECK(b.pending() == 0);
  CHECK(c.pending() == SIGTERM);
  c.end();
  CHECK(is_default(SIGTERM));
  CHECK(is_default(SIGINT));
}

TEST_CASE("A watch notes the signals between its begin() and its end(), and no others") {
  SignalWatch first, later, never;
  first.begin();
  std::raise(SIGINT);
  later.begin();
  CHECK(first.pending() == SIGINT);
  CHECK(first.since());
  CHECK(later.pending() == 0);
  CHECK_FALSE(later.since());
  first.end();
  std::raise(SIGTERM);
  CHECK(first.pending() == SIGINT);
  CHECK(later.pending() == SIGTERM);
  CHECK(never.pending() == 0);
  first.begin();
  CHECK(first.pending() == 0);
}

TEST_CASE("A watch that begins after a signal protects from the next one of its kind") {
  SignalWatch first, later;
  first.begin();
  std::raise(SIGTERM);
  CHECK(is_default(SIGTERM));  // the second would end the process
  later.begin();
  std::raise(SIGTERM);
  CHECK(later.pending() == SIGTERM);
}

TEST_CASE("A watch that was gone without end() has ended") {
  {
    SignalWatch watch;
    watch.begin();
    CHECK_FALSE(is_default(SIGINT));
  }
  CHECK(is_default(SIGINT));
}

TEST_CASE("The last end() leaves a handler alone that the program has installed meanwhile") {
  SignalWatch watch;
  watch.begin();
  std::signal(SIGINT, mine);
  watch.end();
  CHECK((handler_of(SIGINT) == mine));
  std::signal(SIGINT, SIG_DFL);
  CHECK(is_default(SIGTERM));
}

TEST_CASE("begin() leaves a signal alone that the program handles or ignores, whichever way it was installed") {
  for (const bool with_information : {false, true}) {
    struct sigaction program {};
    program.sa_flags = with_information ? SA_SIGINFO : 0;
    if (with_information)
      program.sa_sigaction = [](int, siginfo_t*, void*) {};
    else
      program.sa_handler = SIG_IGN;
    sigaction(SIGINT, &program, nullptr);
    SignalWatch watch;
    watch.begin();
    std::raise(SIGINT);
    CHECK(watch.pending() == 0);
    watch.end();
    struct sigaction now {};
    sigaction(SIGINT, nullptr, &now);
    CHECK((now.sa_handler == program.sa_handler));
    std::signal(SIGINT, SIG_DFL);
  }
}

// Whether the thread sleeps in a system call.
bool sleeps(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string text;
  std::getline(file, text);
  return text.find(") S ") != std::string::npos;
}

TEST_CASE("A read() that a noted signal interrupts goes on") {
  std::array<int, 2> pipe{};
  REQUIRE(::pipe(pipe.data()) == 0);
  SignalWatch watch;
  watch.begin();
  const pthread_t reader = pthread_self();
  std::thread writer([&, id = gettid()] {
    while (!sleeps(id)) std::this_thread::yield();
    pthread_kill(reader, SIGTERM);
    while (watch.pending() == 0) std::this_thread::yield();
    CHECK(::write(pipe[1], "x", 1) == 1);
  });
  char got = 0;
  const ssize_t read = ::read(pipe[0], &got, 1);
  CHECK(read == 1);
  writer.join();
  CHECK(got == 'x');
  ::close(pipe[0]);
  ::close(pipe[1]);
}

TEST_CASE("The second signal of a kind ends the process, whoever watches") {
  const int status = status_of_child([] {
    SignalWatch a, b;
    a.begin();
    b.begin();
    std::raise(SIGTERM);
    std::raise(SIGINT);  // the first of its kind
    std::raise(SIGTERM);
  });
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGTERM);
}

TEST_CASE("Watches that begin and end on several threads at once leave the process as it was") {
  std::vector<std::thread> threads;
  std::atomic<int> unprotected = 0;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int round = 0; round < 500; ++round) {
        SignalWatch watch;
        watch.begin();
        if (is_default(SIGTERM)) ++unprotected;
        watch.end();
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(unprotected == 0);
  CHECK(is_default(SIGTERM));
}

}  // namespace
}  // namespace composer::test::signal_watch_test
