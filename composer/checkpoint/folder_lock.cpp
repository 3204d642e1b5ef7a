#include "composer/checkpoint/folder_lock.h"

#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

#include <sys/file.h>
#include <sys/stat.h>

namespace composer::saving {

FolderLock::FolderLock(const std::filesystem::path& folder) {
  descriptor_ = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
  if (descriptor_ < 0) return;
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    state_ = errno == EWOULDBLOCK ? State::TAKEN : State::UNKNOWN;
    return;
  }
  // Who had the lock until now may have removed the folder.
  struct stat locked = {}, there = {};
  const bool same = ::fstat(descriptor_, &locked) == 0 && ::lstat(folder.c_str(), &there) == 0 &&
                    locked.st_ino == there.st_ino && locked.st_dev == there.st_dev;
  state_ = same ? State::HELD : State::GONE;
}

FolderLock::~FolderLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

}  // namespace composer::saving
