#pragma once
#include <filesystem>
#include <string>
#include <vector>

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

  // Whether the locked file still has its path: false once the folder was renamed, or it or the file was removed. True
  // where there are no locks.
  bool is_in_place() const;

 private:
  bool take(const std::filesystem::path& folder, const std::string& run_name);

  std::filesystem::path path_;
  int descriptor_ = -1;
  int process_ = 0;
};

// Says that a process has begun a run which has no checkpoint yet: a locked file in the folder of its checkpoints,
// named by the run. Unless end() is called, the file stays for the process that begins the run again. If it cannot be
// written or locked there is none; nothing throws.
class RunMark {
 public:
  // `run_name` as it is given; runs without a name are taken for one.
  RunMark(const std::filesystem::path& folder, const std::string& run_name);
  ~RunMark();
  RunMark(const RunMark&) = delete;
  RunMark& operator=(const RunMark&) = delete;

  bool was_left() const { return was_left_; }  // by a process that did not live to call end()
  void end();                                  // removes the file, and the folder if that was made for it alone
  // The same for one that was left; that of a living process stays.
  static void end_left(const std::filesystem::path& folder, const std::string& run_name);

 private:
  std::filesystem::path path_;
  std::vector<std::filesystem::path> made_;  // folders, the innermost first
  int descriptor_ = -1;
  int process_ = 0;
  bool was_left_ = false;
};

}  // namespace composer::saving
