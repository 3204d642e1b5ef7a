#include "composer/profiler/schedule.h"

#include <string>

#include "tests/support/doctest.h"

namespace composer::profiler::schedule_test {
namespace {

// One letter for each batch of an epoch: - W A S
std::string actions(const Schedule& schedule, int batches, std::int64_t resumed_at = 0, bool sized = false) {
  std::string all;
  for (int batch = 0; batch < batches; ++batch)
    switch (action_at(schedule, batch, resumed_at, sized && batch == batches - 1)) {
      case Action::SKIP:
        all += '-';
        break;
      case Action::WARMUP:
        all += 'W';
        break;
      case Action::ACTIVE:
        all += 'A';
        break;
      case Action::ACTIVE_AND_SAVE:
        all += 'S';
        break;
    }
  return all;
}

}  // namespace

TEST_CASE("A profiler's schedule gives the actions that Composer's gives") {
  CHECK(actions({}, 7) == "WAAAS--");
  CHECK(actions({}, 4, 0, /*sized=*/true) == "WAAS");
  CHECK(actions({.skip_first = 1, .wait = 1, .warmup = 1, .active = 2, .repeat = 1}, 8) == "--WAS---");
}

TEST_CASE("A profiler's cycles repeat as often as asked for, or until the epoch ends") {
  CHECK(actions({.wait = 1, .warmup = 0, .active = 2, .repeat = 2}, 8) == "-AS-AS--");
  CHECK(actions({.wait = 1, .warmup = 0, .active = 2, .repeat = 0}, 8, 0, /*sized=*/true) == "-AS-AS-S");
  CHECK(actions({.warmup = 0, .active = 1, .repeat = 0}, 3) == "SSS");
}

TEST_CASE("A run that went on within an epoch skips as many batches more in each") {
  CHECK(actions({.skip_first = 1, .warmup = 1, .active = 1, .repeat = 1}, 6, /*resumed_at=*/2) == "---WS-");
}

}  // namespace composer::profiler::schedule_test
