#pragma once
#include <atomic>
#include <string>

namespace composer::detail {

// Gets each text of warn() first, on the thread that warns. Returns false if it does not handle the text, which then
// goes to the sink of redirect_warnings(), or to stderr.
using WarningRoute = bool (*)(const std::string& text);

// Null in programs without libtorch, and in those that link a static library and have no State. The source that defines
// State sets it to warn_through_libtorch() when it is loaded.
extern std::atomic<WarningRoute> warning_route;

// Passes the text to the warning handler of libtorch that is set on this thread. Returns false if there is none.
bool warn_through_libtorch(const std::string& text);

}  // namespace composer::detail
