#pragma once
#include <cstdint>
#include <filesystem>

namespace composer::saving {

// Says of a folder that it is in use, to this process and to others: from the constructor to the destructor, or to the
// death of the process. The folder may be renamed meanwhile.
class FolderLock {
 public:
  enum class State : std::uint8_t {
    HELD,
    TAKEN,    // somebody else has it
    GONE,     // there is no such folder, or not any more
    UNKNOWN,  // this file system has no locks
  };
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  State state() const { return state_; }

 private:
  int descriptor_ = -1;
  State state_ = State::GONE;
};

}  // namespace composer::saving
