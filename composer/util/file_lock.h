#pragma once
#include <cstdint>
#include <filesystem>

#include "composer/util/own_descriptor.h"

namespace composer::util {

// Marks a file or a folder as in use, for this process and others, from the constructor to the destructor or to the end
// of the process. Forked children do not have the lock. The file may be renamed meanwhile. Reading and writing need no
// lock. For a link to a file, the file that it leads to is locked; a link to a folder is treated as missing.
class FileLock {
 public:
  enum class Kind : std::uint8_t { FILE, FOLDER };
  enum class State : std::uint8_t {
    HELD,
    TAKEN,    // another owner has it, in this process or another
    GONE,     // it does not exist, is of another kind, or cannot be opened
    UNKNOWN,  // the file system has no locks
  };
  explicit FileLock(const std::filesystem::path& given, Kind kind = Kind::FILE);
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  State state() const { return state_; }

 private:
  OwnDescriptor descriptor_;
  State state_ = State::GONE;
};

// Whether another FileLock holds this file.
inline bool is_in_use(const std::filesystem::path& file) { return FileLock(file).state() == FileLock::State::TAKEN; }

}  // namespace composer::util
