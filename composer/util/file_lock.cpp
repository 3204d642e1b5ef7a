#include "composer/util/file_lock.h"

#include <cerrno>
#include <fcntl.h>
#include <system_error>

#include "composer/util/write_all.h"

namespace composer::util {

FileLock::FileLock(const std::filesystem::path& given, Kind kind) {
  // Opening and closing a pipe would wake the process at its other end.
  std::error_code error;
  if (kind == Kind::FILE && !std::filesystem::is_regular_file(given, error)) return;
  const auto path = kind == Kind::FOLDER ? given : std::filesystem::canonical(given, error);
  if (error) return;
  // NFS gives an exclusive lock only for a file that is open for writing, and a folder cannot be opened so.
  const int flags = kind == Kind::FOLDER ? O_RDONLY | O_DIRECTORY : O_RDWR | O_NONBLOCK;
  if (!descriptor_.open(path, flags | O_NOFOLLOW)) return;
  if (!descriptor_.try_lock())
    state_ = errno == EWOULDBLOCK ? State::TAKEN : State::UNKNOWN;
  else if (is_at(descriptor_.number(), path))  // the previous owner of the lock may have removed it
    state_ = State::HELD;
}

}  // namespace composer::util
