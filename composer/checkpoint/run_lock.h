#pragma once
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "composer/util/own_descriptor.h"

namespace composer::saving {

// A file that this process has locked. Empty: no file, also in a forked child.
class LockedFile {
 public:
  // The result of trying to lock a file.
  struct Attempt {
    bool is_open = false;
    bool is_new = false;    // this call has created it
    std::error_code error;  // why it is not locked
    std::string owner;      // who has locked it
  };

  Attempt try_to_lock(const std::filesystem::path& path);  // creates the file if it is missing
  bool is_held() const { return descriptor_.is_open(); }
  std::string text() const;  // the contents of the file
  void set_text(const std::string& text);
  bool is_in_place() const;  // whether the path still leads to the file
  void remove();             // removes the file, unless the path leads to another one, and closes it

 private:
  std::filesystem::path path_;
  util::OwnDescriptor descriptor_;
};

// Prevents a second process from training the same run in the same folder: an exclusive lock on a file in the folder,
// from the constructor to the destructor or to the end of the process. The destructor removes the file, unless its path
// leads to another one; a file left by a killed process is reused. A forked child does not hold the lock and leaves the
// file alone. Reading needs no lock. If the file system has no locks, the constructor warns once and does nothing.
class RunLock {
 public:
  // Throws ConfigError, with the folder and the process, if another process has the lock; FileError if the file cannot
  // be created.
  RunLock(const std::filesystem::path& folder, const std::string& run_name);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  // Whether the path still leads to the locked file. False if the folder was renamed, or the folder or the file was
  // removed. True without locks.
  bool is_in_place() const;

 private:
  LockedFile file_;
};

// Marks a run that a process has begun and that has no checkpoint yet. The mark is a locked file in the folder of the
// run's checkpoints, named by the run; it contains the id that the checkpoints will have. Unless end() is called, the
// file stays for the process that begins the run again. If it cannot be written or locked, there is no mark; no
// function throws.
class RunMark {
 public:
  // `run_name` is as in the options; all runs without a name share a mark.
  RunMark(const std::filesystem::path& folder, const std::string& run_name, std::string run_id = {});
  bool was_left() const { return was_left_; }            // by a process that ended without calling end()
  const std::string& run_id() const { return run_id_; }  // that of the earlier process, if there was one
  void end();  // removes the file, and the folder if it was made only for the file
  // Removes the file of a mark that was left; the file of a running process stays.
  static void end_left(const std::filesystem::path& folder, const std::string& run_name);

 private:
  LockedFile file_;
  std::vector<std::filesystem::path> made_;  // folders, innermost first
  std::string run_id_;
  bool was_left_ = false;
};

}  // namespace composer::saving
