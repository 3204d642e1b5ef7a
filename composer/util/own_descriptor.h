#pragma once
#include <filesystem>

#include <sys/types.h>

namespace composer::util {

// A descriptor of an open file that can be locked, or none. A forked child closes it: a lock belongs to every process
// that has the descriptor, so the child would keep the lock of a parent that was killed.
class OwnDescriptor {
 public:
  OwnDescriptor() = default;
  ~OwnDescriptor() { close(); }
  OwnDescriptor(const OwnDescriptor&) = delete;
  OwnDescriptor& operator=(const OwnDescriptor&) = delete;

  // Closes the previous file. If a function returns false, errno has the reason.
  bool open(const std::filesystem::path& path, int flags, mode_t mode = 0666);  // as ::open() with O_CLOEXEC
  bool close();                                                                 // again: does nothing
  bool try_lock() const;  // locks out everybody else until close(); EWOULDBLOCK: another owner has the lock
  bool wait_for_lock() const;

  int number() const { return number_; }  // -1: none, as in a forked child
  bool is_open() const { return number_ >= 0; }

 private:
  static void close_in_child();
  int number_ = -1;
};

}  // namespace composer::util
