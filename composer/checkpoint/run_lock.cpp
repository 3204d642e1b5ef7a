#include "composer/checkpoint/run_lock.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <fcntl.h>
#include <pthread.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <sys/file.h>

#include "composer/core/error.h"
#include "composer/util/checksum.h"
#include "composer/util/write_all.h"

namespace composer::saving {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLongestLock = 512;  // of what a lock file says

// Descriptors that a forked child closes, increased by 1; 0: unused. The child would otherwise keep the lock of a
// parent that was killed. Beyond that many it does.
std::array<std::atomic<int>, 64> held;

void close_in_child() {
  for (std::atomic<int>& one : held)
    if (const int descriptor = one.exchange(0) - 1; descriptor >= 0) ::close(descriptor);
}

void replace_held(int from, int to) {
  static const int registered = ::pthread_atfork(nullptr, nullptr, close_in_child);
  if (registered != 0) return;
  for (std::atomic<int>& one : held)
    if (int expected = from; one.compare_exchange_strong(expected, to)) return;
}

constexpr const char* kBeginning = ".lock-";

// Runs of other names may save into the same folder.
fs::path path_of(const fs::path& folder, const std::string& run_name) {
  util::Checksum sum;
  sum.update(run_name.data(), run_name.size());
  const std::string text = sum.text();
  return folder / (kBeginning + text.substr(text.find(':') + 1));
}

std::string owner() {
  char host[256] = {};
  const bool known = ::gethostname(host, sizeof host - 1) == 0;
  return join("process ", ::getpid(), " on ", known ? host : "an unknown host");
}

std::string owner_in(int descriptor) {
  char text[kLongestLock];
  const ssize_t size = ::pread(descriptor, text, sizeof text, 0);
  return size > 0 ? std::string(text, static_cast<std::size_t>(size)) : "another process";
}

void warn_of_no_locks(const fs::path& folder, int code) {
  static std::atomic<bool> said = false;
  if (said.exchange(true)) return;
  warn(join("save_folder: ", folder.string(), " cannot be locked (", std::generic_category().message(code),
            "); make sure that no other process trains this run into it"));
}

// A living process still locks it.
bool is_of_killed(const fs::path& lock) {
  const int descriptor = ::open(lock.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (descriptor < 0) return false;
  const bool killed = ::flock(descriptor, LOCK_EX | LOCK_NB) == 0;
  ::close(descriptor);
  return killed;
}

}  // namespace

bool has_lock_of_killed(const fs::path& folder, const std::string& run_name) {
  if (!run_name.empty()) return is_of_killed(path_of(folder, run_name));
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (it->path().filename().string().starts_with(kBeginning) && is_of_killed(it->path())) return true;
  return false;
}

RunLock::RunLock(const fs::path& folder, const std::string& run_name)
    : path_(path_of(folder, run_name)), process_(::getpid()) {
  while (!take(folder, run_name)) {
  }
}

// False: its last owner has removed the file meanwhile; try again.
bool RunLock::take(const fs::path& folder, const std::string& run_name) {
  constexpr int kFlags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW;
  descriptor_ = ::open(path_.c_str(), kFlags | O_EXCL, 0666);
  const bool is_new = descriptor_ >= 0;
  if (!is_new && errno == EEXIST) descriptor_ = ::open(path_.c_str(), kFlags, 0666);
  if (descriptor_ < 0) throw FileError("could not lock", path_, std::error_code(errno, std::generic_category()));
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) == 0) {
    if (util::is_at(descriptor_, path_)) {
      const std::string text = owner();
      if (::ftruncate(descriptor_, 0) == 0) util::write_all(descriptor_, 0, text.data(), text.size());
      replace_held(0, descriptor_ + 1);
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
  if (is_new) ::unlink(path_.c_str());  // else another process may have locked it
  warn_of_no_locks(folder, code);
  return true;
}

bool RunLock::is_in_place() const { return descriptor_ < 0 || util::is_at(descriptor_, path_); }

RunLock::~RunLock() {
  if (descriptor_ < 0 || ::getpid() != process_) return;  // a forked child has closed it
  if (!leaves_ && is_in_place()) ::unlink(path_.c_str());
  replace_held(descriptor_ + 1, 0);
  ::close(descriptor_);
}

}  // namespace composer::saving
