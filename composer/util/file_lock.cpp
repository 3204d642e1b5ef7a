#include "composer/util/file_lock.h"

#include <cerrno>
#include <fcntl.h>
#include <system_error>
#include <unistd.h>

#include <sys/file.h>

#include "composer/util/write_all.h"

namespace composer::util {

FileLock::FileLock(const std::filesystem::path& given, Kind kind) {
  // To open a pipe, and to close it again, wakes who waits at its other end.
  std::error_code error;
  if (kind == Kind::FILE && !std::filesystem::is_regular_file(given, error)) return;
  const auto path = kind == Kind::FOLDER ? given : std::filesystem::canonical(given, error);
  if (error) return;
  // NFS gives an exclusive lock only to who may write, which nobody may into a folder.
  const int flags = kind == Kind::FOLDER ? O_RDONLY | O_DIRECTORY : O_RDWR | O_NONBLOCK;
  descriptor_ = ::open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW);
  if (descriptor_ < 0) return;
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0)
    state_ = errno == EWOULDBLOCK ? State::TAKEN : State::UNKNOWN;
  else if (is_at(descriptor_, path))  // who had the lock until now may have removed it
    state_ = State::HELD;
}

FileLock::~FileLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

}  // namespace composer::util
