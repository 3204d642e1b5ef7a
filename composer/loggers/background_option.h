#pragma once
#include "composer/core/option.h"
#include "composer/loggers/background_logger.h"

namespace composer::loggers {

// The options of loggers that write on a background thread.
template <class Options>
auto flush_interval_option(Seconds Options::*member) {
  return option("flush_interval", member).from_to(0, 86'400, "seconds");
}

template <class Options>
auto on_failure_option(LogFailure Options::*member) {
  return option("on_failure", member, {{"continue", LogFailure::CONTINUE}, {"fail", LogFailure::FAIL}});
}

template <class Options>
auto when_full_option(WhenFull Options::*member) {
  return option(
      "when_full", member,
      {{"wait", WhenFull::WAIT}, {"drop_newest", WhenFull::DROP_NEWEST}, {"drop_oldest", WhenFull::DROP_OLDEST}});
}

}  // namespace composer::loggers
