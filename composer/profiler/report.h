#pragma once
#include <string>

#include "composer/profiler/trace.h"

namespace composer::profiler {

// A text for a terminal: where a step's time goes, by event and by plug-in, and the operators that took longest, at
// most `rows` of each. Lines have at most 79 columns.
std::string report(const Trace& trace, int rows = 15);

}  // namespace composer::profiler
