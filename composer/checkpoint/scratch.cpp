#include "composer/checkpoint/scratch.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <set>
#include <string_view>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <sys/stat.h>

#include "composer/core/error.h"
#include "composer/util/file_lock.h"
#include "composer/util/letters.h"
#include "composer/util/temporary.h"

namespace composer::saving {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kRandom = 6;  // number of characters that make_temporary() appends

bool is_scratch(const std::string& name, const std::string& prefix) {
  return name.starts_with(prefix) && name.size() == prefix.size() + kRandom &&
         std::ranges::all_of(name.substr(prefix.size()), util::is_letter_or_digit);
}

bool is_own(const fs::path& path) {
  struct stat there = {};
  return ::lstat(path.c_str(), &there) == 0 && S_ISDIR(there.st_mode) && there.st_uid == ::geteuid();
}

// Whether this is the first call in this process for the prefix; that call removes the leftovers of other processes. It
// is done only once, because temporary folders may have many entries.
bool is_first(const fs::path& parent, const std::string& prefix) {
  static std::mutex mutex;
  // Never destroyed: threads may still use it.
  static auto* const seen = new std::set<std::pair<fs::path, std::string>>;
  const std::lock_guard lock(mutex);
  return seen->insert({fs::absolute(parent), prefix}).second;
}

}  // namespace

// Another process may remove the folder as a leftover between its creation and its locking.
Scratch::Scratch(const fs::path& parent, const std::string& prefix) {
  fs::create_directories(parent);
  if (is_first(parent, prefix)) remove_leftovers(parent, prefix);
  using State = util::FileLock::State;
  while (true) {
    path_ = util::make_temporary(util::TemporaryKind::FOLDER, parent, prefix);
    lock_ = std::make_unique<util::FileLock>(path_, util::FileLock::Kind::FOLDER);
    if (lock_->state() != State::TAKEN && lock_->state() != State::GONE) return;
    if (lock_->state() == State::GONE && fs::remove(path_))  // it existed until now: no file can be opened
      throw Error(parent.string(), ": a folder there cannot be opened: ", std::strerror(errno));
  }
}

Scratch::~Scratch() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

void Scratch::remove_leftovers(const fs::path& parent, const std::string& prefix) {
  std::error_code error;
  for (fs::directory_iterator it(parent, error), end; !error && it != end; it.increment(error)) {
    const fs::path& path = it->path();
    if (!is_scratch(path.filename(), prefix) || !is_own(path)) continue;
    const util::FileLock lock(path, util::FileLock::Kind::FOLDER);
    std::error_code ignored;  // the next start tries again
    if (lock.state() == util::FileLock::State::HELD) fs::remove_all(path, ignored);
  }
}

}  // namespace composer::saving
