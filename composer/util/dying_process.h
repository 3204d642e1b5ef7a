#pragma once
#include <string_view>

namespace composer::util {

// Whether the process was killed and is still there: the system takes its memory apart before it lets go of its files
// and locks. False for one that is gone, or cannot be asked.
bool is_dying(int process);

// The same of the text of /proc/PID/status.
bool is_status_of_dying(std::string_view status);

// Whether a process that is dying holds the lock of this open file.
bool is_locked_by_dying(int descriptor);

}  // namespace composer::util
