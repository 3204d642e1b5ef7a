#include "composer/checkpoint/file_system.h"

#include <cerrno>
#include <fcntl.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <linux/fs.h>
#include <sys/stat.h>

#include "composer/util/write_all.h"

namespace composer::saving {
namespace {

[[noreturn]] void fail(const char* what, const std::filesystem::path& path) {
  throw FileError(what, path, std::error_code(errno, std::generic_category()));
}

}  // namespace

FileSystem::~FileSystem() = default;
FileError::~FileError() = default;

void FileSystem::make_folder(const Path& path) {
  if (::mkdir(path.c_str(), 0755) != 0) fail("could not make the folder", path);
}

int FileSystem::create(const Path& path) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file < 0) fail("could not create", path);
  return file;
}

void FileSystem::write(int file, const Path& path, std::uint64_t offset, const void* data, std::size_t size) {
  if (!util::write_all(file, offset, data, size)) fail("could not write", path);
}

void FileSystem::start_sync(int file, const Path& path, std::uint64_t offset, std::uint64_t size) {
  const int result =
      ::sync_file_range(file, static_cast<off_t>(offset), static_cast<off_t>(size), SYNC_FILE_RANGE_WRITE);
  if (result != 0 && errno != EINVAL && errno != ENOSYS && errno != ENOTSUP && errno != ESPIPE)  // sync() does it all
    fail("could not write", path);
}

void FileSystem::sync(int file, const Path& path) {
  if (::fdatasync(file) != 0) fail("could not sync", path);
}

void FileSystem::close(int file, const Path& path) {
  if (::close(file) != 0 && errno != EINTR) fail("could not close", path);
}

void FileSystem::sync_folder(const Path& path) {
  if (!util::sync_folder(path)) fail("could not sync the folder", path);
}

void FileSystem::rename(const Path& from, const Path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) fail("could not rename to", to);
}

bool FileSystem::exchange(const Path& a, const Path& b) {
  if (::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0) return true;
  if (errno == EINVAL || errno == ENOSYS || errno == ENOTSUP) return false;
  fail("could not replace", b);
}

bool FileSystem::make_link(const Path& target, const Path& path) {
  if (::symlink(target.c_str(), path.c_str()) == 0) return true;
  if (errno == EPERM || errno == ENOSYS || errno == ENOTSUP) return false;
  fail("could not make the link", path);
}

void FileSystem::remove(const Path& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (error) throw FileError("could not remove", path, error);
}

}  // namespace composer::saving
