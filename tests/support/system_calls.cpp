// Definitions in the program itself come before those of the C library, also for libcomposer.
#include "tests/support/system_calls.h"

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <fcntl.h>
#include <mutex>
#include <unistd.h>

#include <linux/fs.h>
#include <sys/file.h>
#include <sys/syscall.h>

namespace composer::test {
namespace {

std::atomic<bool> noting = false, plain = false, no_locks = false, no_aligned_memory = false;
std::mutex mutex;
std::vector<std::string> calls;

void note(std::string call) {
  if (!noting) return;
  const std::lock_guard lock(mutex);
  calls.push_back(std::move(call));
}

std::string path_of(int file) {
  char path[PATH_MAX];
  const ssize_t size = ::readlink(("/proc/self/fd/" + std::to_string(file)).c_str(), path, sizeof path);
  return size > 0 ? std::string(path, static_cast<std::size_t>(size)) : "?";
}

}  // namespace

SystemCalls::SystemCalls() {
  const std::lock_guard lock(mutex);
  calls.clear();
  noting = true;
}

SystemCalls::~SystemCalls() { noting = false; }

std::vector<std::string> SystemCalls::made() const {
  const std::lock_guard lock(mutex);
  return calls;
}

PlainRenames::PlainRenames() { plain = true; }
PlainRenames::~PlainRenames() { plain = false; }

NoLocks::NoLocks() { no_locks = true; }
NoLocks::~NoLocks() { no_locks = false; }

NoAlignedMemory::NoAlignedMemory() { no_aligned_memory = true; }
NoAlignedMemory::~NoAlignedMemory() { no_aligned_memory = false; }

}  // namespace composer::test

extern "C" {

[[gnu::visibility("default")]] void* aligned_alloc(std::size_t alignment, std::size_t size) {
  void* memory = nullptr;
  if (composer::test::no_aligned_memory || ::posix_memalign(&memory, alignment, size) != 0) return nullptr;
  return memory;
}

[[gnu::visibility("default")]] int flock(int file, int operation) noexcept {
  if (composer::test::no_locks) {
    errno = ENOTSUP;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_flock, file, operation));
}

[[gnu::visibility("default")]] int fdatasync(int file) {
  composer::test::note("fdatasync " + composer::test::path_of(file));
  return static_cast<int>(::syscall(SYS_fdatasync, file));
}

[[gnu::visibility("default")]] int fsync(int file) {
  composer::test::note("fsync " + composer::test::path_of(file));
  return static_cast<int>(::syscall(SYS_fsync, file));
}

[[gnu::visibility("default")]] int rename(const char* from, const char* to) noexcept {
  composer::test::note(std::string("rename ") + from + ' ' + to);
  return static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

[[gnu::visibility("default")]] int renameat2(int from_folder, const char* from, int to_folder, const char* to,
                                             unsigned flags) noexcept {
  if (flags != 0 && composer::test::plain) {
    errno = EINVAL;
    return -1;
  }
  const auto result = static_cast<int>(::syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
  const int error = errno;
  if (result == 0)
    composer::test::note(std::string(flags == RENAME_EXCHANGE ? "exchange " : "rename ") + from + ' ' + to);
  errno = error;
  return result;
}

}  // extern "C"
