#pragma once
#include <string>

namespace composer::loggers {

std::string path_of_program();  // empty if unknown

}  // namespace composer::loggers
