#include "composer/checkpoint/run_lock.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <fcntl.h>
#include <string_view>
#include <unistd.h>
#include <utility>

#include "composer/checkpoint/file_system.h"
#include "composer/core/error.h"
#include "composer/util/checksum.h"
#include "composer/util/write_all.h"

namespace composer::saving {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLongestLock = 512;  // bytes that are read of a lock file

// Includes the run's name, because runs with other names may save into the same folder.
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

// Empty: nothing was written to it yet.
std::string text_in(int descriptor) {
  char text[kLongestLock];
  const ssize_t size = ::pread(descriptor, text, sizeof text, 0);
  return size > 0 ? std::string(text, static_cast<std::size_t>(size)) : "";
}

std::string owner_in(int descriptor) {
  const std::string owner = text_in(descriptor);
  return owner.empty() ? "another process" : owner;
}

// The beginning of a mark's text. The id that follows is also a part of file names.
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

// Creates the missing folders and returns them, innermost first.
std::vector<fs::path> make_folders(const fs::path& folder) {
  std::vector<fs::path> made;
  std::error_code error;
  for (fs::path path = folder; !path.empty() && !fs::exists(path, error); path = path.parent_path())
    made.push_back(path);
  fs::create_directories(folder, error);
  return made;
}

}  // namespace

// Differs from util::FileLock: the file is created and written.
LockedFile::Attempt LockedFile::try_to_lock(const fs::path& path) {
  constexpr int kFlags = O_RDWR | O_CREAT | O_NOFOLLOW;
  path_ = path;
  for (;;) {
    const bool is_new = descriptor_.open(path, kFlags | O_EXCL);
    if (!is_new && (errno != EEXIST || !descriptor_.open(path, kFlags)))
      return {.error = {errno, std::generic_category()}};
    const bool locked = descriptor_.try_lock();
    const std::error_code error(locked ? 0 : errno, std::generic_category());
    if (locked && is_in_place()) return {.is_open = true, .is_new = is_new};
    const std::string owner = error == std::errc::operation_would_block ? owner_in(descriptor_.number()) : "";
    descriptor_.close();
    if (!locked) return {.is_open = true, .is_new = is_new, .error = error, .owner = owner};
    // The previous owner has removed the file meanwhile.
  }
}

std::string LockedFile::text() const { return text_in(descriptor_.number()); }

// At any time the file contains at least the common beginning of the old and the new text.
void LockedFile::set_text(const std::string& text) {
  util::write_all(descriptor_.number(), 0, text.data(), text.size());
  if (::ftruncate(descriptor_.number(), static_cast<off_t>(text.size())) != 0) {  // a rest of the old text does no harm
  }
  ::fsync(descriptor_.number());  // after a power failure, an empty file would have no owner
}

bool LockedFile::is_in_place() const { return util::is_at(descriptor_.number(), path_); }

void LockedFile::remove() {
  if (is_held() && is_in_place()) ::unlink(path_.c_str());
  descriptor_.close();
}

RunLock::RunLock(const fs::path& folder, const std::string& run_name) {
  const fs::path path = lock_of(folder, run_name);
  const LockedFile::Attempt attempt = file_.try_to_lock(path);
  if (file_.is_held()) {
    file_.set_text(owner());
    return;
  }
  if (!attempt.is_open) throw FileError("could not lock", path, attempt.error);
  if (!attempt.owner.empty())
    throw ConfigError("save_folder: ", folder.string(), " is in use: ", attempt.owner, " is training the run ",
                      run_name, " into it; wait until it ends or stop it, or set another save_folder or run_name");
  if (attempt.is_new) ::unlink(path.c_str());  // otherwise another process may have locked it
  warn_of_no_locks(folder, attempt.error.value());
}

bool RunLock::is_in_place() const { return !file_.is_held() || file_.is_in_place(); }

RunLock::~RunLock() { file_.remove(); }

// The text in the file distinguishes a file that was left from one that another process has created and not locked yet.
RunMark::RunMark(const fs::path& folder, const std::string& run_name, std::string run_id)
    : made_(make_folders(folder)), run_id_(std::move(run_id)) {
  const fs::path path = mark_of(folder, run_name);
  const LockedFile::Attempt attempt = file_.try_to_lock(path);
  if (file_.is_held()) {
    const std::string left = file_.text();
    was_left_ = !left.empty();
    if (std::string id = run_id_in(left); !id.empty()) run_id_ = std::move(id);
    file_.set_text(join(kRun, run_id_, ", ", owner()));
  } else if (attempt.is_open && attempt.owner.empty()) {
    ::unlink(path.c_str());  // the file system has no locks
  }
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
