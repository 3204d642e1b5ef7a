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

#include <sys/file.h>
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

OutputFile::OutputFile(std::string owner, std::string path, FileMode mode)
    : owner_(std::move(owner)), path_(std::move(path)) {
  std::error_code error, ignored;
  const auto folder = std::filesystem::path(path_).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (error && !std::filesystem::is_directory(folder, ignored))
    throw ConfigError(owner_, ": cannot write ", path_, ": its folder cannot be made: ", error.message());
  open(mode);
  if (!is_regular()) return;
  lock(mode);
  if (mode == FileMode::OVERWRITE) cut(0);
  if (mode == FileMode::APPEND && size() > 0 && ends_in_mid_line(path_)) write("\n");
}

// Whatever the mode, what is written goes to the end: another program may cut the file, as logrotate does. What is
// overwritten stays until the file is locked.
void OutputFile::open(FileMode mode) {
  close();
  const int exclusive = mode == FileMode::CREATE ? O_EXCL : 0;
  descriptor_.number = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | exclusive, 0666);
  if (descriptor_.number < 0 && errno == EEXIST)
    throw ConfigError(owner_, ": ", path_, " exists; choose another path, or append to it, or overwrite it");
  if (descriptor_.number < 0) throw ConfigError(owner_, ": cannot write ", path_, ": ", reason(errno));
}

// Who only looks whether a file is in use has its lock for a moment. Where there are no locks, nobody has one. A
// FileLock would open the path once more, and might find another file there than the one that is written.
void OutputFile::lock(FileMode mode) {
  constexpr int kTimes = 20;
  std::error_code error;
  for (int i = 0; i < kTimes; ++i) {
    if (::flock(descriptor_.number, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    else if (is_at(descriptor_.number, std::filesystem::canonical(path_, error)))
      return;
    else  // its owner has renamed or removed it
      open(mode);
  }
  fail_in_use(owner_, path_);
}

OutputFile::Descriptor::~Descriptor() {
  if (number >= 0) ::close(number);
}

void OutputFile::write(std::string_view text) {
  const NoSigpipe no_sigpipe;
  while (!text.empty()) {
    const auto written = ::write(descriptor_.number, text.data(), text.size());
    if (written < 0 && errno != EINTR) fail(errno);
    if (written > 0) text.remove_prefix(static_cast<std::size_t>(written));
  }
}

std::int64_t OutputFile::size() const {
  struct stat status {};
  if (::fstat(descriptor_.number, &status) != 0) fail(errno);
  return status.st_size;
}

bool OutputFile::is_regular() const {
  struct stat status {};
  return ::fstat(descriptor_.number, &status) == 0 && S_ISREG(status.st_mode);
}

bool OutputFile::is_removed() const {
  struct stat status {};
  if (::fstat(descriptor_.number, &status) != 0) fail(errno);
  return status.st_nlink == 0;
}

void OutputFile::cut(std::int64_t size) {
  if (::ftruncate(descriptor_.number, size) != 0) fail(errno);
}

void OutputFile::sync() {
  while (::fdatasync(descriptor_.number) != 0) {
    if (errno == EINVAL || errno == EROFS || errno == ENOTSUP) return;  // a pipe or a device
    if (errno != EINTR) fail(errno);
  }
}

void OutputFile::close() {
  if (descriptor_.number < 0) return;
  if (::close(std::exchange(descriptor_.number, -1)) != 0) fail(errno);
}

void OutputFile::fail(int code) const { throw Error(owner_, ": cannot write ", path_, ": ", reason(code)); }

void fail_in_use(const std::string& owner, const std::string& path) {
  throw ConfigError(owner, ": ", path, " is being written by another logger, of this process or of another one; give ",
                    "each logger and each trainer a path of its own");
}

}  // namespace composer::util
