#include "composer/util/output_file.h"

#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>

#include <sys/stat.h>

#include "composer/core/error.h"
#include "composer/util/no_sigpipe.h"
#include "composer/util/write_all.h"

namespace composer::util {
namespace {

std::string reason(int code) { return std::generic_category().message(code); }

bool ends_in_mid_line(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return file.seekg(-1, std::ios::end) && file.get() != '\n';
}

}  // namespace

OutputFile::OutputFile(std::string owner, std::string path, FileMode mode, Writers writers)
    : owner_(std::move(owner)), path_(std::move(path)) {
  std::error_code error, ignored;
  const auto folder = std::filesystem::path(path_).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (error && !std::filesystem::is_directory(folder, ignored))
    throw ConfigError(owner_, ": cannot write ", path_, ": its folder cannot be made: ", error.message());
  open(mode);
  if (!is_regular()) return;
  if (writers == Writers::ONE) lock(mode);
  if (mode == FileMode::OVERWRITE) cut(0);
  if (mode == FileMode::APPEND && size() > 0 && ends_in_mid_line(path_)) write("\n");
}

// Opens for appending in every mode, because another program may cut the file, as logrotate does. The previous contents
// stay until the file is locked.
void OutputFile::open(FileMode mode) {
  close();
  const int exclusive = mode == FileMode::CREATE ? O_EXCL : 0;
  if (descriptor_.open(path_, O_WRONLY | O_CREAT | O_APPEND | exclusive)) return;
  if (errno == EEXIST)
    throw ConfigError(owner_, ": ", path_, " exists; choose another path, or append to it, or overwrite it");
  throw ConfigError(owner_, ": cannot write ", path_, ": ", reason(errno));
}

// Retries because a program that only checks whether the file is in use holds the lock for a moment. On a file system
// without locks, locking is skipped. A FileLock would open the path a second time, and might lock another file than the
// one that is written.
void OutputFile::lock(FileMode mode) {
  constexpr int kTimes = 100;
  for (int i = 0; i < kTimes; ++i) {
    if (!descriptor_.try_lock() && errno == EWOULDBLOCK)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    else if (leads_to(path_, descriptor_.number()))
      return;
    else  // the previous owner has renamed or removed the file
      open(mode);
  }
  fail_in_use(owner_, path_);
}

void OutputFile::write(std::string_view text) {
  const NoSigpipe no_sigpipe;
  std::size_t written = 0;
  while (written < text.size()) {
    const auto more = ::write(descriptor_.number(), text.data() + written, text.size() - written);
    if (more > 0) written += static_cast<std::size_t>(more);
    if (more >= 0 || errno == EINTR) continue;
    const int code = errno;
    remove_partial(written);
    fail(code);
  }
}

// Removes an incomplete line or record, which would make what follows unreadable.
void OutputFile::remove_partial(std::size_t written) {
  struct stat status {};
  if (written == 0 || ::fstat(descriptor_.number(), &status) != 0 || !S_ISREG(status.st_mode)) return;
  const auto end = ::lseek(descriptor_.number(), 0, SEEK_CUR);  // end of the last write
  if (end == status.st_size) (void)!::ftruncate(descriptor_.number(), end - static_cast<off_t>(written));
}

// Overwrites in place: if the file were cut first, a process killed before the write would have lost the contents.
// O_APPEND is removed meanwhile, because with it Linux appends even by pwrite().
void OutputFile::replace_end(std::int64_t from, std::string_view text, std::string_view before) {
  const int file = descriptor_.number(), flags = ::fcntl(file, F_GETFL);
  if (flags < 0 || ::fcntl(file, F_SETFL, flags & ~O_APPEND) != 0) fail(errno);
  const auto begin = static_cast<std::uint64_t>(from);
  const bool is_written = write_all(file, begin, text.data(), text.size());
  const int code = errno;
  if (!is_written) write_all(file, begin, before.data(), before.size());
  (void)::fcntl(file, F_SETFL, flags);
  cut(from + static_cast<std::int64_t>(is_written ? text.size() : before.size()));
  if (!is_written) fail(code);
}

std::int64_t OutputFile::size() const {
  struct stat status {};
  if (::fstat(descriptor_.number(), &status) != 0) fail(errno);
  return status.st_size;
}

bool OutputFile::is_regular() const {
  struct stat status {};
  return ::fstat(descriptor_.number(), &status) == 0 && S_ISREG(status.st_mode);
}

bool OutputFile::is_removed() const {
  struct stat status {};
  if (::fstat(descriptor_.number(), &status) != 0) fail(errno);
  return status.st_nlink == 0 && !leads_to(path_, descriptor_.number());
}

void OutputFile::cut(std::int64_t size) {
  if (::ftruncate(descriptor_.number(), size) != 0) fail(errno);
}

void OutputFile::sync() {
  while (::fdatasync(descriptor_.number()) != 0) {
    if (errno == EINVAL || errno == EROFS || errno == ENOTSUP) return;  // a pipe or a device
    if (errno != EINTR) fail(errno);
  }
}

void OutputFile::close() {
  if (!descriptor_.close()) fail(errno);
}

void OutputFile::fail(int code) const {
  const bool is_lost = code == EBADF && !descriptor_.is_open();
  throw Error(owner_, ": cannot write ", path_, ": ",
              is_lost ? "it was opened before a fork(); open it in the child" : reason(code));
}

void fail_in_use(const std::string& owner, const std::string& path) {
  throw ConfigError(owner, ": ", path, " is being written by another logger, of this process or of another one; give ",
                    "each logger and each trainer a path of its own");
}

}  // namespace composer::util
