#include "composer/util/set_aside.h"

#include <filesystem>
#include <system_error>

#include "composer/core/error.h"

namespace composer::util {

std::string set_aside(const std::string& owner, const std::string& path) {
  int number = 1;
  const auto aside = [&] { return join(path, '.', number); };
  while (std::filesystem::exists(std::filesystem::symlink_status(aside()))) ++number;
  std::error_code error;
  std::filesystem::rename(path, aside(), error);
  if (error) throw ConfigError(owner, ": ", path, " cannot be renamed to ", aside(), ": ", error.message());
  return aside();
}

}  // namespace composer::util
