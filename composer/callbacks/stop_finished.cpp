#include "composer/callbacks/stop_finished.h"

#include "composer/core/error.h"
#include "composer/core/state.h"

namespace composer::callbacks {

void stop_finished(const State& state, const std::string& why) {
  const bool was_asked = state.stop.pending() && state.stop.kind() == Stop::FINISHED;
  state.stop.ask(why, Stop::FINISHED);
  if (was_asked || state.rank != 0) return;
  warn(join(why, "; it asks to end the run at epoch ", state.timestamp.epoch, ", batch ", state.timestamp.batch));
}

}  // namespace composer::callbacks
