#include "composer/trainer/ending.h"

#include <csignal>
#include <initializer_list>

#include "tests/support/doctest.h"

namespace composer::test::ending_test {
namespace {

TEST_CASE("A fit ends for its limit, a request or a signal; it was asked to by a request or a signal") {
  struct Row {
    bool limit, stop;
    int signal;
    bool over, was_asked;
  };
  for (const auto& [limit, stop, signal, over, was_asked] : {
           Row{false, false, 0, false, false},
           Row{true, false, 0, true, false},
           Row{false, true, 0, true, true},
           Row{false, false, SIGINT, true, true},
           Row{true, true, 0, true, true},
           Row{true, false, SIGTERM, true, true},
           Row{false, true, SIGTERM, true, true},
           Row{true, true, SIGINT, true, true},
       }) {
    CAPTURE(limit);
    CAPTURE(stop);
    CAPTURE(signal);
    Ending ending;
    CHECK(ending.note(signal) == (signal != 0));
    CHECK(ending.decide(limit, stop) == over);
    CHECK(ending.over() == over);
    CHECK(ending.signal() == signal);
    CHECK_FALSE(ending.was_asked());
    ending.decide_last(limit, stop);
    CHECK(ending.was_asked() == was_asked);
  }
}

TEST_CASE("What comes after the verdict changes it with the next step, and the first signal stays the one") {
  Ending ending;
  CHECK_FALSE(ending.decide(false, false));
  CHECK(ending.note(SIGTERM));
  CHECK_FALSE(ending.note(SIGINT));
  CHECK_FALSE(ending.note(0));
  CHECK(ending.interrupted());
  CHECK_FALSE(ending.over());
  CHECK(ending.decide(false, false));
  CHECK(ending.signal() == SIGTERM);
}

TEST_CASE("Only the last verdict says that a request or a signal has ended the fit, and not its limit alone") {
  Ending stopped, limited, interrupted;
  stopped.decide(false, true);
  CHECK_FALSE(stopped.was_asked());
  stopped.decide_last(false, true);
  CHECK(stopped.was_asked());
  stopped.decide_last(false, false);  // it was taken back
  CHECK_FALSE(stopped.was_asked());
  limited.decide_last(true, false);
  CHECK_FALSE(limited.was_asked());
  interrupted.decide_last(false, false);
  interrupted.note(SIGINT);  // while the fit ends
  CHECK(interrupted.was_asked());
}

TEST_CASE("A request that was taken back lets the fit go on") {
  Ending ending;
  CHECK(ending.decide(false, true));
  CHECK_FALSE(ending.decide(false, false));
}

}  // namespace
}  // namespace composer::test::ending_test
