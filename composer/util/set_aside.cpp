#include "composer/util/set_aside.h"

#include <filesystem>
#include <system_error>

#include "composer/core/error.h"
#include "composer/util/file_lock.h"
#include "composer/util/output_file.h"

namespace composer::util {

std::string set_aside(const std::string& owner, const std::string& path) {
  const FileLock lock(path);
  if (lock.state() == FileLock::State::TAKEN) fail_in_use(owner, path);
  int number = 1;
  std::error_code error;
  const auto aside = [&] { return join(path, '.', number); };
  while (std::filesystem::exists(std::filesystem::symlink_status(aside(), error))) ++number;
  std::filesystem::rename(path, aside(), error);
  if (error) throw ConfigError(owner, ": ", path, " cannot be renamed to ", aside(), ": ", error.message());
  return aside();
}

}  // namespace composer::util
