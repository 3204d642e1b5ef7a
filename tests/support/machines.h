#pragma once
#include <chrono>

#include "composer/util/processors.h"

namespace composer::test {

// While it lives, measurements on this thread find a machine on which no other program runs, whatever runs here.
struct QuietMachine {
  util::ProcessorTimesAre times{[] {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return util::ProcessorTimes{.wall = std::chrono::duration<double>(now).count()};
  }};
};

// One on which another program takes each processor from this one, until `quiet` is set. A second passes at each look.
struct BusyMachine {
  bool quiet = false;
  util::ProcessorTimes now{.processors = 2};
  util::ProcessorTimesAre times{[this] {
    now.wall += 1;
    if (!quiet) now.stolen += 2;
    return now;
  }};
};

}  // namespace composer::test
