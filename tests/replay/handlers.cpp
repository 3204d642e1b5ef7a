// The table of all handlers.
#include "tests/replay/replay.h"

namespace composer::replay {

Suite schedulers_suite();
Suite time_suite();

const std::vector<Suite>& suites() {
  static const std::vector<Suite> all = {
      schedulers_suite(),
      time_suite(),
  };
  return all;
}

}  // namespace composer::replay
