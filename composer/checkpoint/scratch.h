#pragma once
#include <filesystem>
#include <memory>
#include <string>

#include "composer/core/export.h"

namespace composer::util {
class FileLock;
}  // namespace composer::util

namespace composer::saving {

// A new folder PREFIXxxxxxx in `parent`, removed at the end of the scope unless it was renamed. Missing parents are
// created. Before the first folder of a process is made, folders with this prefix that killed processes have left are
// removed; running processes lock their folders. On a file system without locks, the left folders stay.
class COMPOSER_EXPORT Scratch {
 public:
  Scratch(const std::filesystem::path& parent, const std::string& prefix);  // throws Error
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const std::filesystem::path& path() const { return path_; }

  static void remove_leftovers(const std::filesystem::path& parent, const std::string& prefix);

 private:
  std::filesystem::path path_;
  std::unique_ptr<util::FileLock> lock_;
};

}  // namespace composer::saving
