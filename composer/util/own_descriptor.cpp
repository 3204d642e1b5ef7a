#include "composer/util/own_descriptor.h"

#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <mutex>
#include <new>
#include <pthread.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <sys/file.h>

#include "composer/util/dying_process.h"

namespace composer::util {
namespace {

struct OpenDescriptors {
  std::timed_mutex mutex;  // fork() waits for it, so that the child knows all descriptors
  std::vector<OwnDescriptor*> list;
};
OpenDescriptors& open_descriptors() {
  static auto* the_one = new OpenDescriptors;  // never destroyed: static objects may have descriptors
  return *the_one;
}

// fork() waits only briefly: a signal handler may fork on the very thread that holds the mutex, and a file system may
// hang. The child of such a fork keeps the open files and their locks.
thread_local bool has_waited = false;  // this thread's fork() holds the mutex

void wait_for_openings() { has_waited = open_descriptors().mutex.try_lock_for(std::chrono::milliseconds(200)); }

void end_waiting() {
  if (std::exchange(has_waited, false)) open_descriptors().mutex.unlock();
}

// Opening a pipe waits for its reader, which may still have to be forked; so the mutex is not held meanwhile.
bool is_pipe(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_fifo(path, ignored);
}

}  // namespace

void OwnDescriptor::close_in_child() {
  OpenDescriptors& all = open_descriptors();
  if (!has_waited) {
    ::new (&all.mutex) std::timed_mutex;  // the thread that held it does not exist in this process
    ::new (&all.list) std::vector<OwnDescriptor*>;
    return;
  }
  for (OwnDescriptor* const one : all.list) ::close(std::exchange(one->number_, -1));
  all.list.clear();
  end_waiting();
}

bool OwnDescriptor::open(const std::filesystem::path& path, int flags, mode_t mode) {
  static const int registered = ::pthread_atfork(wait_for_openings, end_waiting, close_in_child);
  (void)registered;
  close();
  OpenDescriptors& all = open_descriptors();
  std::unique_lock lock(all.mutex, std::defer_lock);
  if (!is_pipe(path)) lock.lock();
  number_ = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  if (number_ < 0) return false;
  if (!lock.owns_lock()) lock.lock();
  all.list.push_back(this);
  return true;
}

bool OwnDescriptor::close() {
  OpenDescriptors& all = open_descriptors();
  const std::lock_guard lock(all.mutex);
  if (!is_open()) return true;
  std::erase(all.list, this);
  return ::close(std::exchange(number_, -1)) == 0;
}

// A killed process keeps its locks until the system has ended it. A process that replaces it waits for that.
bool OwnDescriptor::try_lock() const {
  using Clock = std::chrono::steady_clock;
  Clock::time_point latest = Clock::now() + std::chrono::seconds(10);
  int looks = 0;  // number of consecutive checks that found no dying process
  while (::flock(number_, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return false;
    if (is_locked_by_dying(number_))
      looks = 0;
    else if (++looks == 3)  // the first checks may come before the system shows it
      latest = {};
    if (Clock::now() >= latest) {
      errno = EWOULDBLOCK;
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

bool OwnDescriptor::wait_for_lock() const {
  while (::flock(number_, LOCK_EX) != 0)
    if (errno != EINTR) return false;
  return true;
}

}  // namespace composer::util
