#pragma once
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "composer/util/own_descriptor.h"

namespace composer::saving {

// A file that this process has locked, or none, as in a forked child.
class LockedFile {
 public:
  // What came of locking a file.
  struct Attempt {
    bool is_open = false;
    bool is_new = false;    // this call has made it
    std::error_code error;  // why it is not locked
    std::string owner;      // who has locked it
  };

  Attempt try_to_lock(const std::filesystem::path& path);  // made if it is missing
  bool is_held() const { return descriptor_.is_open(); }
  std::string text() const;  // what the file says
  void set_text(const std::string& text);
  bool is_in_place() const;  // whether the file still has its path
  void remove();             // it, unless another file has its path since, and closes

 private:
  std::filesystem::path path_;
  util::OwnDescriptor descriptor_;
};

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
  LockedFile file_;
};

// Says that a process has begun a run which has no checkpoint yet: a locked file in the folder of its checkpoints,
// named by the run, which says the id that the run's checkpoints will have. Unless end() is called, the file stays for
// the process that begins the run again. If it cannot be written or locked there is none; nothing throws.
class RunMark {
 public:
  // `run_name` as it is given; runs without a name are taken for one.
  RunMark(const std::filesystem::path& folder, const std::string& run_name, std::string run_id = {});
  bool was_left() const { return was_left_; }            // by a process that did not live to call end()
  const std::string& run_id() const { return run_id_; }  // that process's, if there was one
  void end();  // removes the file, and the folder if that was made for it alone
  // Removes the file of a mark that was left; that of a living process stays.
  static void end_left(const std::filesystem::path& folder, const std::string& run_name);

 private:
  LockedFile file_;
  std::vector<std::filesystem::path> made_;  // folders, the innermost first
  std::string run_id_;
  bool was_left_ = false;
};

}  // namespace composer::saving
