#include "composer/checkpoint/run_lock.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <fcntl.h>
#include <pthread.h>
#include <string_view>
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

// Runs of other names may save into the same folder.
fs::path path_of(const fs::path& folder, const char* beginning, const std::string& run_name) {
  util::Checksum sum;
  sum.update(run_name.data(), run_name.size());
  const std::string text = sum.text();
  return folder / (beginning + text.substr(text.find(':') + 1));
}
fs::path lock_of(const fs::path& folder, const std::string& run_name) { return path_of(folder, ".lock-", run_name); }
fs::path mark_of(const fs::path& folder, const std::string& run_name) { return path_of(folder, ".begun-", run_name); }

std::string owner() {
  char host[256] = {};
  const bool known = ::gethostname(host, sizeof host - 1) == 0;
  return join("process ", ::getpid(), " on ", known ? host : "an unknown host");
}

// Empty: nothing is written there yet.
std::string text_in(int descriptor) {
  char text[kLongestLock];
  const ssize_t size = ::pread(descriptor, text, sizeof text, 0);
  return size > 0 ? std::string(text, static_cast<std::size_t>(size)) : "";
}

std::string owner_in(int descriptor) {
  const std::string owner = text_in(descriptor);
  return owner.empty() ? "another process" : owner;
}

// What a mark begins with. The id is a part of file names.
constexpr std::string_view kRun = "run ";

std::string run_id_in(std::string_view text) {
  if (!text.starts_with(kRun)) return {};
  text.remove_prefix(kRun.size());
  return std::string(text.substr(0, std::min(text.find_first_not_of("0123456789abcdef-"), text.size())));
}

void warn_of_no_locks(const fs::path& folder, int code) {
  static std::atomic<bool> said = false;
  if (said.exchange(true)) return;
  warn(join("save_folder: ", folder.string(), " cannot be locked (", std::generic_category().message(code),
            "); make sure that no other process trains this run into it"));
}

// What came of locking a file. Not util::FileLock: the file is made, and keeps its descriptor for LockedFile.
struct Attempt {
  int descriptor = -1;  // of the locked file
  bool is_open = false;
  bool is_new = false;    // this call has made it
  std::error_code error;  // why it is not locked
  std::string owner;      // who has locked it
};

Attempt try_to_lock(const fs::path& path) {
  constexpr int kFlags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW;
  for (;;) {
    int file = ::open(path.c_str(), kFlags | O_EXCL, 0666);
    const bool is_new = file >= 0;
    if (!is_new && errno == EEXIST) file = ::open(path.c_str(), kFlags, 0666);
    if (file < 0) return {.error = {errno, std::generic_category()}};
    const bool locked = ::flock(file, LOCK_EX | LOCK_NB) == 0;
    const std::error_code error(locked ? 0 : errno, std::generic_category());
    if (locked && util::is_at(file, path)) return {.descriptor = file, .is_open = true, .is_new = is_new};
    const std::string owner = error == std::errc::operation_would_block ? owner_in(file) : "";
    ::close(file);
    if (!locked) return {.is_open = true, .is_new = is_new, .error = error, .owner = owner};
    // Its last owner has removed it meanwhile.
  }
}

// Those that do not exist yet, the innermost first.
std::vector<fs::path> make_folders(const fs::path& folder) {
  std::vector<fs::path> made;
  std::error_code error;
  for (fs::path path = folder; !path.empty() && !fs::exists(path, error); path = path.parent_path())
    made.push_back(path);
  fs::create_directories(folder, error);
  return made;
}

}  // namespace

// What is the same as before is never missing.
void LockedFile::hold(int descriptor, fs::path path, const std::string& text) {
  close();
  path_ = std::move(path);
  descriptor_ = descriptor;
  process_ = ::getpid();
  util::write_all(descriptor_, 0, text.data(), text.size());
  if (::ftruncate(descriptor_, static_cast<off_t>(text.size())) != 0) {  // what is left behind it does no harm
  }
  replace_held(0, descriptor_ + 1);
}

bool LockedFile::is_held() const { return descriptor_ >= 0 && ::getpid() == process_; }

bool LockedFile::is_in_place() const { return util::is_at(descriptor_, path_); }

void LockedFile::close() {
  if (!is_held()) return;
  replace_held(descriptor_ + 1, 0);
  ::close(std::exchange(descriptor_, -1));
}

void LockedFile::remove() {
  if (!is_held()) return;
  if (is_in_place()) ::unlink(path_.c_str());
  close();
}

RunLock::RunLock(const fs::path& folder, const std::string& run_name) {
  const fs::path path = lock_of(folder, run_name);
  const Attempt attempt = try_to_lock(path);
  if (attempt.descriptor >= 0) {
    file_.hold(attempt.descriptor, path, owner());
    return;
  }
  if (!attempt.is_open) throw FileError("could not lock", path, attempt.error);
  if (!attempt.owner.empty())
    throw ConfigError("save_folder: ", folder.string(), " is in use: ", attempt.owner, " is training the run ",
                      run_name, " into it; wait until it ends or stop it, or set another save_folder or run_name");
  if (attempt.is_new) ::unlink(path.c_str());  // else another process may have locked it
  warn_of_no_locks(folder, attempt.error.value());
}

bool RunLock::is_in_place() const { return !file_.is_held() || file_.is_in_place(); }

RunLock::~RunLock() { file_.remove(); }

// What is written into it tells one that was left from one that another process has created, and not locked yet.
RunMark::RunMark(const fs::path& folder, const std::string& run_name, std::string run_id)
    : made_(make_folders(folder)), run_id_(std::move(run_id)) {
  const fs::path path = mark_of(folder, run_name);
  const Attempt attempt = try_to_lock(path);
  if (attempt.descriptor < 0) {
    if (attempt.is_open && attempt.owner.empty()) ::unlink(path.c_str());  // there are no locks
    return;
  }
  const std::string left = text_in(attempt.descriptor);
  was_left_ = !left.empty();
  if (std::string id = run_id_in(left); !id.empty()) run_id_ = std::move(id);
  file_.hold(attempt.descriptor, path, join(kRun, run_id_, ", ", owner()));
}

void RunMark::end() {
  if (!file_.is_held()) return;
  file_.remove();
  for (const fs::path& folder : made_)
    if (::rmdir(folder.c_str()) != 0) return;
}

void RunMark::end_left(const fs::path& folder, const std::string& run_name) {
  std::error_code error;
  if (fs::exists(mark_of(folder, run_name), error)) RunMark(folder, run_name).end();
}

}  // namespace composer::saving
