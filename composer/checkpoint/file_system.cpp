#include "composer/checkpoint/file_system.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <dirent.h>
#include <fcntl.h>
#include <iterator>
#include <memory>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <linux/fs.h>
#include <sys/stat.h>

#include "composer/util/write_all.h"

namespace composer::saving {
namespace {

using Type = FileSystem::Type;

[[noreturn]] void fail_with_errno(const char* what, const std::filesystem::path& path) {
  throw FileError(what, path, std::error_code(errno, std::generic_category()));
}

Type type_of(mode_t mode) {
  if (S_ISREG(mode)) return Type::FILE;
  if (S_ISDIR(mode)) return Type::FOLDER;
  return S_ISLNK(mode) ? Type::LINK : Type::OTHER;
}

struct CloseFolder {
  void operator()(DIR* folder) const { ::closedir(folder); }
};

struct Descriptor {
  ~Descriptor() {
    if (number >= 0) ::close(number);
  }
  int number;
};

}  // namespace

FileSystem::~FileSystem() = default;
FileError::~FileError() = default;

bool FileError::is_missing() const {
  const int all[] = {ENOENT, ENOTDIR, ELOOP, ENAMETOOLONG};
  return std::ranges::find(all, code().value()) != std::end(all);
}
bool FileError::is_denied() const { return code().value() == EACCES || code().value() == EPERM; }

FileSystem& real_files() {
  static auto* const files = new FileSystem;  // never destroyed: a trainer may be a global, which is destroyed later
  return *files;
}

FileSystem::Type FileSystem::type(const Path& path) {
  struct stat status = {};
  if (::lstat(path.c_str(), &status) == 0) return type_of(status.st_mode);
  if (errno == ENOENT || errno == ENOTDIR) return Type::NONE;
  fail_with_errno("could not look up", path);
}

std::vector<FileSystem::Item> FileSystem::list(const Path& folder) {
  const std::unique_ptr<DIR, CloseFolder> open(::opendir(folder.c_str()));
  if (!open) fail_with_errno("could not list", folder);
  std::vector<Item> items;
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(open.get());
    if (!entry) break;
    const std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    Type found = Type::OTHER;
    if (entry->d_type == DT_UNKNOWN)
      found = type(folder / name);
    else
      found = type_of(DTTOIF(entry->d_type));
    if (found != Type::NONE) items.push_back({name, found});
  }
  if (errno != 0) fail_with_errno("could not list", folder);
  std::ranges::sort(items, {}, &Item::name);
  return items;
}

std::string FileSystem::read(const Path& path, std::uint64_t most) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.number < 0) fail_with_errno("could not read", path);
  std::string text;
  char piece[1 << 16];
  for (;;) {
    const ssize_t size = ::read(file.number, piece, sizeof piece);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) fail_with_errno("could not read", path);
    if (size == 0) return text;
    text.append(piece, static_cast<std::size_t>(size));
    if (text.size() <= most) continue;
    errno = EFBIG;
    fail_with_errno("could not read", path);
  }
}

std::uint64_t FileSystem::size(const Path& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0) fail_with_errno("could not look up", path);
  return static_cast<std::uint64_t>(status.st_size);
}

FileSystem::Path FileSystem::canonical(const Path& path) {
  const std::unique_ptr<char, void (*)(void*)> resolved(::realpath(path.c_str(), nullptr), std::free);
  if (!resolved) fail_with_errno("could not look up", path);
  return resolved.get();
}

void FileSystem::make_folder(const Path& path) {
  if (::mkdir(path.c_str(), 0777) != 0) fail_with_errno("could not make the folder", path);
}

int FileSystem::create(const Path& path) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file < 0) fail_with_errno("could not create", path);
  return file;
}

void FileSystem::write(int file, const Path& path, std::uint64_t offset, const void* data, std::size_t size) {
  if (!util::write_all(file, offset, data, size)) fail_with_errno("could not write", path);
}

void FileSystem::start_sync(int file, const Path& path, std::uint64_t offset, std::uint64_t size) {
  const int result =
      ::sync_file_range(file, static_cast<off_t>(offset), static_cast<off_t>(size), SYNC_FILE_RANGE_WRITE);
  // Sync() then writes everything.
  if (result != 0 && errno != EINVAL && errno != ENOSYS && errno != ENOTSUP && errno != ESPIPE)
    fail_with_errno("could not write", path);
}

void FileSystem::sync(int file, const Path& path) {
  if (::fdatasync(file) != 0) fail_with_errno("could not sync", path);
}

void FileSystem::close(int file, const Path& path) {
  if (::close(file) != 0 && errno != EINTR) fail_with_errno("could not close", path);
}

void FileSystem::sync_folder(const Path& path) {
  if (!util::sync_folder(path)) fail_with_errno("could not sync the folder", path);
}

void FileSystem::rename(const Path& from, const Path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) fail_with_errno("could not rename to", to);
}

bool FileSystem::rename_if_free(const Path& from, const Path& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return true;
  if (errno == EEXIST) return false;
  if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP) fail_with_errno("could not rename to", to);
  if (FileSystem::type(to) != Type::NONE) return false;
  if (::rename(from.c_str(), to.c_str()) == 0) return true;
  const int code = errno;
  if (FileSystem::type(to) != Type::NONE) return false;
  errno = code;
  fail_with_errno("could not rename to", to);
}

bool FileSystem::exchange(const Path& a, const Path& b) {
  if (::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0) return true;
  if (errno == EINVAL || errno == ENOSYS || errno == ENOTSUP || errno == EXDEV) return false;
  fail_with_errno("could not replace", b);
}

bool FileSystem::make_link(const Path& target, const Path& path) {
  if (::symlink(target.c_str(), path.c_str()) == 0) return true;
  // Errors of file systems without links, including shared folders of virtual machines and networks.
  for (const int without_links : {EPERM, ENOSYS, ENOTSUP, EPROTO, EROFS, EACCES, EINVAL})
    if (errno == without_links) return false;
  fail_with_errno("could not make the link", path);
}

void FileSystem::remove(const Path& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (error) throw FileError("could not remove", path, error);
}

std::filesystem::path canonical_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::path path = std::filesystem::weakly_canonical(folder, error);
  if (error) path = folder.lexically_normal();  // the write there reports the reason
  return path.has_filename() ? path : path.parent_path();
}

TemporaryPath::TemporaryPath(FileSystem& files, std::filesystem::path path) : files_(files), path_(std::move(path)) {}
TemporaryPath::TemporaryPath(TemporaryPath&& other) noexcept : files_(other.files_), path_(other.release()) {}

// A path that cannot be removed now is removed as a leftover by the next process that saves there.
TemporaryPath::~TemporaryPath() {
  if (path_.empty()) return;
  try {
    files_.remove(path_);
  } catch (const std::filesystem::filesystem_error&) {
    path_.clear();
  }
}

std::filesystem::path TemporaryPath::release() { return std::exchange(path_, {}); }

}  // namespace composer::saving
