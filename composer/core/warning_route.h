#pragma once
#include <atomic>
#include <string>

namespace composer::detail {

// Gets each text of warn() first, on the thread that warns; false: it does not take the text, which then goes to the
// sink of redirect_warnings(), or to stderr.
using WarningRoute = bool (*)(const std::string& text);

// Null where nothing sets it: in programs without libtorch, and in those that link a static library and have no State.
// What defines State sets it to warn_through_libtorch() when it is loaded.
extern std::atomic<WarningRoute> warning_route;

// Hands the text to the warning handler of libtorch that somebody has set on this thread, if there is one.
bool warn_through_libtorch(const std::string& text);

}  // namespace composer::detail
