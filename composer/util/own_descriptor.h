#pragma once
#include <filesystem>

#include <sys/types.h>

namespace composer::util {

// A descriptor of an open file that can be locked, or none. A forked child closes it: the lock belongs to all who have
// the descriptor, so the child would keep that of a parent which was killed.
class OwnDescriptor {
 public:
  OwnDescriptor() = default;
  ~OwnDescriptor() { close(); }
  OwnDescriptor(const OwnDescriptor&) = delete;
  OwnDescriptor& operator=(const OwnDescriptor&) = delete;

  // Closes the one before. Where they return false, errno says why not.
  bool open(const std::filesystem::path& path, int flags, mode_t mode = 0666);  // as ::open() with O_CLOEXEC
  bool close();                                                                 // again: does nothing
  bool try_lock() const;  // for nobody else, until it is closed; EWOULDBLOCK: somebody else has the lock
  bool wait_for_lock() const;

  int number() const { return number_; }  // -1: none, as in a forked child
  bool is_open() const { return number_ >= 0; }

 private:
  static void close_in_child();
  int number_ = -1;
};

}  // namespace composer::util
