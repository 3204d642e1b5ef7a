#pragma once
#include <cstdint>
#include <filesystem>

namespace composer::saving {

// Marks a folder as in use for this process and others, from the constructor to the destructor or to the end of the
// process. The folder may be renamed meanwhile.
class FolderLock {
 public:
  enum class State : std::uint8_t {
    HELD,
    TAKEN,    // another owner has it
    GONE,     // the folder does not exist
    UNKNOWN,  // the file system has no locks
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
