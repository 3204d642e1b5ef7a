#pragma once
#include <string_view>

namespace composer::util {

// Whether the process was killed but has not ended yet: the system frees its memory before its files and locks. Returns
// false for a process that has ended, or whose status cannot be read.
bool is_dying(int process);

// Whether `status`, the text of /proc/PID/status, is that of a dying process.
bool is_status_of_dying(std::string_view status);

// Whether a dying process holds the lock of this open file.
bool is_locked_by_dying(int descriptor);

}  // namespace composer::util
