// When a measurement of time counts as disturbed by other programs, and what is read of the system.
#include "composer/util/processors.h"

#include "tests/support/doctest.h"

namespace composer::processors_test {
namespace {

using util::ProcessorTimes;

TEST_CASE("A measurement was disturbed if others used the processors and took some of them from this process") {
  struct Row {
    const char* what;
    ProcessorTimes spent;
    bool disturbed;
  };
  const Row rows[] = {
      {"alone", {.wall = 1, .own = 2, .all = 2, .preempted = 5, .processors = 2}, false},
      {"a neighbour that shares two processors",
       {.wall = 1, .own = 1, .all = 2, .preempted = 100, .processors = 2},
       true},
      {"the same for a tenth of a second", {.wall = .1, .own = .1, .all = .2, .preempted = 12, .processors = 2}, true},
      {"a mail client", {.wall = 1, .own = 1.9, .all = 2, .preempted = 30, .processors = 2}, false},
      {"busy processors that this process did not need",
       {.wall = 1, .own = 2, .all = 10, .preempted = 3, .processors = 64},
       false},
      {"a count in ticks, in a hundredth of a second",
       {.wall = .01, .own = 0, .all = .02, .preempted = 1, .processors = 2},
       false},
      {"another machine on the same processors", {.wall = 1, .own = 2, .all = 2, .stolen = .5, .processors = 2}, true},
      {"threads of this process push each other aside",
       {.wall = 1, .own = 2, .all = 2, .preempted = 300, .processors = 2},
       true},
      {"a system that tells nothing", {.wall = 1}, false},
  };
  for (const auto& [what, spent, disturbed] : rows) {
    CAPTURE(what);
    ProcessorTimes from{.wall = 5, .own = 7, .all = 100, .stolen = 3, .preempted = 40, .processors = spent.processors};
    ProcessorTimes to = from;
    to.wall += spent.wall;
    to.own += spent.own;
    to.all += spent.all;
    to.stolen += spent.stolen;
    to.preempted += spent.preempted;
    CHECK(util::disturbed(from, to) == disturbed);
  }
}

TEST_CASE("Of /proc/stat, the processors count that this thread may use, without the time that they wait") {
  ProcessorTimes times{.processors = 0};
  const auto add = [&times](const char* line) {
    util::add_processor(
        line, [](int processor) { return processor != 1; }, 0.01, times);
  };
  add("cpu  900 900 900 900 900 900 900 900 0 0");  // the sum of all
  add("cpu0 100 20 30 99999 500 4 6 40 7 7");
  add("cpu1 100 100 100 100 100 100 100 100 0 0");
  add("cpu2 100 0 0 0 0 0 0 0 0 0");
  add("cpu3 what is this");
  add("intr 1 2 3");
  CHECK(times.processors == 2);
  CHECK(times.all == doctest::Approx(2.6));
  CHECK(times.stolen == doctest::Approx(0.4));
}

TEST_CASE("The times of this process rise, and a test can replace them on its thread") {
  const ProcessorTimes before = util::processor_times();
  ProcessorTimes now = before;
  while (now.own <= before.own) now = util::processor_times();
  CHECK(now.wall > before.wall);
  CHECK(now.processors >= 1);
  {
    const util::ProcessorTimesAre made_up([] { return ProcessorTimes{.wall = -3}; });
    CHECK(util::processor_times().wall == -3);
  }
  CHECK(util::processor_times().wall >= now.wall);
}

}  // namespace
}  // namespace composer::processors_test
