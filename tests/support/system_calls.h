#pragma once
#include <string>
#include <vector>

namespace composer::test {

// While it lives, notes which of the system's calls that make files durable this process makes, in their order. They
// are carried out all the same. One at a time.
class SystemCalls {
 public:
  SystemCalls();
  ~SystemCalls();
  SystemCalls(const SystemCalls&) = delete;
  SystemCalls& operator=(const SystemCalls&) = delete;
  // "fdatasync PATH", "fsync PATH", "rename FROM TO", "exchange A B"; of renameat2() only what it has done.
  std::vector<std::string> made() const;
};

// While it lives, the system can neither exchange two names nor rename only to a free one, as on NFS. One at a time.
class PlainRenames {
 public:
  PlainRenames();
  ~PlainRenames();
  PlainRenames(const PlainRenames&) = delete;
  PlainRenames& operator=(const PlainRenames&) = delete;
};

// While it lives, the file system has no locks, as some network file systems. One at a time.
class NoLocks {
 public:
  NoLocks();
  ~NoLocks();
  NoLocks(const NoLocks&) = delete;
  NoLocks& operator=(const NoLocks&) = delete;
};

// While it lives, aligned_alloc() has no memory. One at a time.
class NoAlignedMemory {
 public:
  NoAlignedMemory();
  ~NoAlignedMemory();
  NoAlignedMemory(const NoAlignedMemory&) = delete;
  NoAlignedMemory& operator=(const NoAlignedMemory&) = delete;
};

}  // namespace composer::test
