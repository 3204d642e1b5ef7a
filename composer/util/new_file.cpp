#include "composer/util/new_file.h"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <string_view>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "composer/core/error.h"
#include "composer/util/write_all.h"

namespace composer::util {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSuffix = ".tmp-";

// Locks a file while this process lives. Returns false if another process has locked or removed it meanwhile.
bool lock(const OwnDescriptor& file, const fs::path& path) {
  if (!file.try_lock()) return errno != EWOULDBLOCK;  // without locks, no process removes leftovers
  return is_at(file.number(), path);
}

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// The beginning of "weights.pt.tmp-PID-COUNT", the temporary name of "weights.pt". A name has at most 255 bytes, and a
// target may use them all.
std::string prefix_of(const fs::path& target) {
  constexpr std::size_t kMost = 200;
  return target.filename().string().substr(0, kMost) + kSuffix;
}

bool is_temporary_of(const fs::path& target, const std::string& name) {
  const std::string prefix = prefix_of(target);
  if (!name.starts_with(prefix)) return false;
  const std::string_view rest = std::string_view(name).substr(prefix.size());
  const std::size_t dash = rest.find('-');
  return dash != std::string_view::npos && is_number(rest.substr(0, dash)) && is_number(rest.substr(dash + 1));
}

void make_folders(const fs::path& folder) {
  if (folder.empty() || fs::is_directory(folder)) return;
  make_folders(folder.parent_path());
  if (fs::create_directory(folder)) sync_folder(folder.parent_path());
}

}  // namespace

void write_whole_file(const fs::path& target, std::string_view content) {
  NewFile file(target);
  file.write(content);
  file.commit();
}

void remove_leftovers_of(const fs::path& target) {
  std::error_code error;
  const fs::path folder = target.has_parent_path() ? target.parent_path() : ".";
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (!is_temporary_of(target, it->path().filename().string())) continue;
    OwnDescriptor left;
    if (left.open(it->path(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK) && left.try_lock()) ::unlink(it->path().c_str());
  }
}

NewFile::NewFile(fs::path target) : target_(std::move(target)) {
  try {
    if (fs::is_symlink(target_)) target_ = fs::weakly_canonical(target_);
    if (fs::exists(target_) && !fs::is_regular_file(target_))
      throw Error("could not create ", target_.string(), ": it exists and is not a file");
    make_folders(target_.parent_path());
  } catch (const fs::filesystem_error& error) {
    throw Error("could not create ", target_.string(), ": ", error.code().message(), " [", error.path1().string(), "]");
  }
  remove_leftovers_of(target_);
  create();
}

// Repeats if another process takes the file for a leftover between its creation and its locking.
void NewFile::create() {
  static std::atomic<std::uint64_t> count = 0;
  for (;;) {
    path_ = target_.parent_path() / join(prefix_of(target_), ::getpid(), '-', ++count);
    if (!descriptor_.open(path_, O_WRONLY | O_CREAT | O_EXCL)) {
      if (errno != EEXIST) fail("create");
    } else if (lock(descriptor_, path_)) {
      return;
    }
  }
}

NewFile::~NewFile() {
  if (!committed_) ::unlink(path_.c_str());
}

void NewFile::write(const void* data, std::size_t size) {
  write_at(end_, data, size);
  end_ += size;
}

void NewFile::write_at(std::uint64_t offset, const void* data, std::size_t size) {
  if (!write_all(descriptor_.number(), offset, data, size)) fail("write");
}

void NewFile::commit() {
  if (::fsync(descriptor_.number()) != 0) fail("sync");
  if (::rename(path_.c_str(), target_.c_str()) != 0) fail("rename");
  committed_ = true;
  if (!descriptor_.close()) fail("close");
  if (!sync_folder(target_.parent_path())) fail("sync the folder of");
}

void NewFile::fail(const char* what) const {
  const std::string reason = std::strerror(errno);
  throw Error("could not ", what, " ", path_.string(), ": ", reason);
}

}  // namespace composer::util
