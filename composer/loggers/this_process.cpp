#include "composer/loggers/this_process.h"

#include <array>
#include <chrono>
#include <cstddef>
#include <unistd.h>

namespace composer::loggers {

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string path_of_program() {
  std::array<char, 4096> path{};
  const auto length = ::readlink("/proc/self/exe", path.data(), path.size());
  return length > 0 ? std::string(path.data(), static_cast<std::size_t>(length)) : "";
}

}  // namespace composer::loggers
