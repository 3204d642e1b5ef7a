#pragma once
#include <string>

namespace composer::util {

// Renames a file to the first free name of PATH.1, PATH.2, ..., and returns that name. Throws ConfigError that begins
// with `owner` if the file cannot be renamed, or if an OutputFile is writing it.
std::string set_aside(const std::string& owner, const std::string& path);

}  // namespace composer::util
