#pragma once
#include <filesystem>
#include <string>

#include "composer/checkpoint/file_system.h"

namespace composer::saving {

// Prevents a second process from training the same run into the same folder: an exclusive lock on a file in it, from
// the constructor to the destructor or to the end of the process. The destructor removes the file, unless another one
// has its path since; a file left by a killed process is reused. A forked child does not hold the lock and leaves the
// file alone. Reading needs no lock. If the file system has no locks, the constructor warns once and does nothing.
class RunLock {
 public:
  // Throws ConfigError with the folder and the process if another process has the lock; FileError if the file cannot be
  // created.
  RunLock(const std::filesystem::path& folder, const std::string& run_name);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;
  void leave() { leaves_ = true; }  // the file behind, as a process that is killed does

  // Whether the locked file still has its path: false once the folder was renamed, or it or the file was removed. True
  // where there are no locks.
  bool is_in_place() const;

 private:
  bool take(const std::filesystem::path& folder, const std::string& run_name);

  std::filesystem::path path_;
  int descriptor_ = -1;
  int process_ = 0;
  bool leaves_ = false;
};

// Whether a process that was killed has left its lock in the folder: of this run, or of any if `run_name` is empty.
bool has_lock_of_killed(const std::filesystem::path& folder, const std::string& run_name);

}  // namespace composer::saving
