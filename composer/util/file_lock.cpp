#include "composer/util/file_lock.h"

#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

#include <sys/file.h>

#include "composer/util/write_all.h"

namespace composer::util {

// NFS gives an exclusive lock only to who may write.
FileLock::FileLock(const std::filesystem::path& file) {
  descriptor_ = ::open(file.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (descriptor_ < 0) return;
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0)
    state_ = errno == EWOULDBLOCK ? State::TAKEN : State::UNKNOWN;
  else if (is_at(descriptor_, file))  // who had the lock until now may have removed it
    state_ = State::HELD;
}

FileLock::~FileLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

}  // namespace composer::util
