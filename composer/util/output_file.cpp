#include "composer/util/output_file.h"

#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <sys/stat.h>

#include "composer/core/error.h"
#include "composer/util/no_sigpipe.h"

namespace composer::util {
namespace {

int flags(FileMode mode) {
  switch (mode) {
    case FileMode::APPEND:
      return 0;
    case FileMode::OVERWRITE:
      return O_TRUNC;
    case FileMode::CREATE:
      break;
  }
  return O_EXCL;
}

std::string reason(int code) { return std::generic_category().message(code); }

bool ends_in_mid_line(const std::string& path) {
  if (!std::filesystem::is_regular_file(path)) return false;
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
  // Whatever the mode, what is written goes to the end: another program may cut the file, as logrotate does.
  descriptor_.number = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | flags(mode), 0666);
  if (descriptor_.number < 0 && errno == EEXIST)
    throw ConfigError(owner_, ": ", path_, " exists; choose another path, or append to it, or overwrite it");
  if (descriptor_.number < 0) throw ConfigError(owner_, ": cannot write ", path_, ": ", reason(errno));
  if (mode == FileMode::APPEND && size() > 0 && ends_in_mid_line(path_)) write("\n");
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

}  // namespace composer::util
