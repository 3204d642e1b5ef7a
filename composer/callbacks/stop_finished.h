#pragma once
#include <string>

namespace composer {
struct State;
}

namespace composer::callbacks {

// Asks to end the run for good. The first who does so in a fit also says why and when, in a warning of rank 0.
void stop_finished(const State& state, const std::string& why);

}  // namespace composer::callbacks
