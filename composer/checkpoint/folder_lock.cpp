#include "composer/checkpoint/folder_lock.h"

#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

#include <sys/file.h>

#include "composer/util/write_all.h"

namespace composer::saving {

FolderLock::FolderLock(const std::filesystem::path& folder) {
  descriptor_ = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
  if (descriptor_ < 0) return;
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0)
    state_ = errno == EWOULDBLOCK ? State::TAKEN : State::UNKNOWN;
  else if (util::is_at(descriptor_, folder))  // who had the lock until now may have removed the folder
    state_ = State::HELD;
}

FolderLock::~FolderLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

}  // namespace composer::saving
