#pragma once
#include <string>

namespace composer::util {

// Gives a file a name that is free, PATH.1 or the next, and returns that. Throws ConfigError that begins with `owner`
// if it cannot be renamed, or if an OutputFile is writing it.
std::string set_aside(const std::string& owner, const std::string& path);

}  // namespace composer::util
