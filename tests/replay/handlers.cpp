// The table of all handlers.
#include "tests/replay/replay.h"

namespace composer::replay {

Suite algorithms_suite();
Suite checkpoints_suite();
Suite console_suite();
Suite events_suite();
Suite invocation_order_suite();
Suite logged_keys_suite();
Suite messages_suite();
Suite metrics_suite();
Suite schedulers_suite();
Suite time_suite();
Suite training_suite();

const std::vector<Suite>& suites() {
  static const std::vector<Suite> all = {
      algorithms_suite(),       checkpoints_suite(), console_suite(),  events_suite(),
      invocation_order_suite(), logged_keys_suite(), messages_suite(), metrics_suite(),
      schedulers_suite(),       time_suite(),        training_suite(),
  };
  return all;
}

}  // namespace composer::replay
