#include "composer/loggers/this_process.h"

#include <array>
#include <cstddef>
#include <unistd.h>

namespace composer::loggers {

std::string path_of_program() {
  std::array<char, 4096> path{};
  const auto length = ::readlink("/proc/self/exe", path.data(), path.size());
  return length > 0 ? std::string(path.data(), static_cast<std::size_t>(length)) : "";
}

}  // namespace composer::loggers
