#include "composer/util/write_all.h"

#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

#include <sys/stat.h>

namespace composer::util {
namespace {

bool are_same(const struct stat& one, const struct stat& other) {
  return one.st_ino == other.st_ino && one.st_dev == other.st_dev;
}

}  // namespace

bool write_all(int file, std::uint64_t offset, const void* data, std::size_t size) {
  const auto* from = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = ::pwrite(file, from, size, static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written == 0) errno = EIO;
    if (written <= 0) return false;
    from += written;
    offset += static_cast<std::uint64_t>(written);
    size -= static_cast<std::size_t>(written);
  }
  return true;
}

bool sync_folder(const std::filesystem::path& folder) {
  const int opened = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (opened < 0) return false;
  const bool synced = ::fsync(opened) == 0 || errno == EINVAL || errno == ENOTSUP;
  const int reason = errno;
  ::close(opened);
  errno = reason;
  return synced;
}

bool is_at(int file, const std::filesystem::path& path) {
  struct stat open = {}, there = {};
  return ::fstat(file, &open) == 0 && ::lstat(path.c_str(), &there) == 0 && are_same(open, there);
}

bool leads_to(const std::filesystem::path& path, int file) {
  struct stat open = {}, there = {};
  return ::fstat(file, &open) == 0 && ::stat(path.c_str(), &there) == 0 && are_same(open, there);
}

}  // namespace composer::util
