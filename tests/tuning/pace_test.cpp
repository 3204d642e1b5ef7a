// When steps count as slower than was promised when the way to train was chosen.
#include "composer/tuning/pace.h"

#include "tests/support/doctest.h"
#include "tests/support/machines.h"

namespace composer::pace_test {
namespace {

using test::BusyMachine;

void add(Pace& pace, int steps, double seconds) {
  for (int i = 0; i < steps; ++i) pace.add(seconds);
}

TEST_CASE("Steps are late if most of two windows take more than one and a half times what was promised") {
  const BusyMachine machine;
  Pace pace;
  CHECK_FALSE(pace.has_promise());
  pace.promise(0.1, 128);
  CHECK(pace.has_promise());
  add(pace, 200, 0.14);
  CHECK_FALSE(pace.is_late());
  pace.promise(0.1, 128);
  add(pace, 20, 0.25);
  CHECK_FALSE(pace.is_late());  // one window
  add(pace, 40, 0.125);
  add(pace, 20, 0.25);
  CHECK_FALSE(pace.is_late());  // one again
  add(pace, 20, 0.25);
  CHECK(pace.is_late());
  CHECK(pace.late_seconds() == doctest::Approx(0.25));
}

TEST_CASE("Steps are not late while no other program disturbs the run: training may be slower than a trial") {
  BusyMachine machine;
  machine.quiet = true;
  Pace pace;
  pace.promise(0.1, 128);
  add(pace, 500, 0.2);
  CHECK_FALSE(pace.is_late());
  machine.quiet = false;
  add(pace, 25, 0.2);
  CHECK(pace.is_late());
}

TEST_CASE("A few slow steps, however slow, are no slow run") {
  const BusyMachine machine;
  Pace pace;
  pace.promise(0.1, 128);
  for (int i = 0; i < 40; ++i) {
    add(pace, 12, 0.1);
    add(pace, 8, 9);
  }
  CHECK_FALSE(pace.is_late());
}

TEST_CASE("A window lasts twenty steps and five seconds, or a thousand steps") {
  const BusyMachine machine;
  Pace pace;
  pace.promise(0.1, 128);
  add(pace, 39, 1);
  CHECK_FALSE(pace.is_late());
  add(pace, 1, 1);
  CHECK(pace.is_late());
  pace.promise(0.001, 128);
  add(pace, 1999, 0.002);
  CHECK_FALSE(pace.is_late());
  add(pace, 1, 0.002);
  CHECK(pace.is_late());
}

TEST_CASE("That a run is late is news once for each promise") {
  const BusyMachine machine;
  Pace pace;
  pace.promise(0.1, 128);
  CHECK_FALSE(pace.take_news());
  add(pace, 100, 1);
  CHECK(pace.take_news());
  add(pace, 100, 1);
  CHECK_FALSE(pace.take_news());
  pace.promise(0.1, 128);
  CHECK_FALSE(pace.is_late());
  add(pace, 100, 1);
  CHECK(pace.take_news());
}

TEST_CASE("Only microbatches of the size that was measured are compared") {
  const BusyMachine machine;
  Pace pace;
  pace.promise(1e-9, 128);
  for (int i = 0; i < 100; ++i) {
    pace.start(64);
    pace.stop();
  }
  add(pace, 39, 10);
  CHECK_FALSE(pace.is_late());  // 39 of that size
  pace.start(128);
  pace.stop();
  CHECK(pace.is_late());
}

}  // namespace
}  // namespace composer::pace_test
