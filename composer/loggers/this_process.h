#pragma once
#include <string>

namespace composer::loggers {

double seconds_since_1970();
std::string path_of_program();  // empty: unknown

}  // namespace composer::loggers
