#include "composer/checkpoint/run_lock.h"

#include <atomic>
#include <cerrno>
#include <fcntl.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <sys/file.h>
#include <sys/stat.h>

#include "composer/core/error.h"
#include "composer/util/checksum.h"
#include "composer/util/write_all.h"

namespace composer::saving {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLongest = 512;  // of what a lock file says

// Runs of other names may save into the same folder.
fs::path path_of(const fs::path& folder, const std::string& run_name) {
  util::Checksum sum;
  sum.update(run_name.data(), run_name.size());
  const std::string text = sum.text();
  return folder / (".lock-" + text.substr(text.find(':') + 1));
}

std::string owner() {
  char host[256] = {};
  const bool known = ::gethostname(host, sizeof host - 1) == 0;
  return join("process ", ::getpid(), " on ", known ? host : "an unknown host");
}

std::string owner_in(int descriptor) {
  char text[kLongest];
  const ssize_t size = ::pread(descriptor, text, sizeof text, 0);
  return size > 0 ? std::string(text, static_cast<std::size_t>(size)) : "another process";
}

void warn_of_no_locks(const fs::path& folder, int code) {
  static std::atomic<bool> said = false;
  if (said.exchange(true)) return;
  warn(join("save_folder: ", folder.string(), " cannot be locked (", std::generic_category().message(code),
            "); make sure that no other process trains this run into it"));
}

}  // namespace

RunLock::RunLock(const fs::path& folder, const std::string& run_name) : path_(path_of(folder, run_name)) {
  while (!take(folder, run_name)) {
  }
}

// False: its last owner has removed the file meanwhile; try again.
bool RunLock::take(const fs::path& folder, const std::string& run_name) {
  descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (descriptor_ < 0) throw FileError("could not lock", path_, std::error_code(errno, std::generic_category()));
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) == 0) {
    struct stat locked = {}, there = {};
    if (::fstat(descriptor_, &locked) == 0 && ::lstat(path_.c_str(), &there) == 0 && locked.st_ino == there.st_ino) {
      const std::string text = owner();
      if (::ftruncate(descriptor_, 0) == 0) util::write_all(descriptor_, 0, text.data(), text.size());
      return true;
    }
    ::close(std::exchange(descriptor_, -1));
    return false;
  }
  const int code = errno;
  const std::string other = code == EWOULDBLOCK ? owner_in(descriptor_) : "";
  ::close(std::exchange(descriptor_, -1));
  if (code == EWOULDBLOCK)
    throw ConfigError("save_folder: ", folder.string(), " is in use: ", other, " is training the run ", run_name,
                      " into it; wait until it ends or stop it, or set another save_folder or run_name");
  ::unlink(path_.c_str());
  warn_of_no_locks(folder, code);
  return true;
}

RunLock::~RunLock() {
  if (descriptor_ < 0) return;
  ::unlink(path_.c_str());
  ::close(descriptor_);
}

}  // namespace composer::saving
