#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

#include "composer/core/export.h"

namespace composer::saving {

// The calls that change a disk, as a checkpoint makes them. Each throws FileError. Tests put others in their place that
// fail, or end the process, at the n-th.
class COMPOSER_EXPORT FileSystem {
 public:
  using Path = std::filesystem::path;
  virtual ~FileSystem();

  virtual void make_folder(const Path& path);  // must not be there
  virtual int create(const Path& path);        // a file that is not there; returns its descriptor
  virtual void write(int file, const Path& path, std::uint64_t offset, const void* data,
                     std::size_t size);  // all of it
  // Begins to put that part on the disk, without waiting for it.
  virtual void start_sync(int file, const Path& path, std::uint64_t offset, std::uint64_t size);
  virtual void sync(int file, const Path& path);          // its data are on the disk
  virtual void close(int file, const Path& path);         // closed, also if it throws
  virtual void sync_folder(const Path& path);             // the names in it are on the disk
  virtual void rename(const Path& from, const Path& to);  // in place of what is there, in one step
  // Both are there, and change names in one step. False: this disk cannot do that, NFS for one.
  virtual bool exchange(const Path& a, const Path& b);
  // Symbolic; must not be there. False: this disk has no such links.
  virtual bool make_link(const Path& target, const Path& path);
  virtual void remove(const Path& path);  // with all that is in it; not being there is fine
};

// What the system refused.
struct COMPOSER_EXPORT FileError : std::filesystem::filesystem_error {
  using filesystem_error::filesystem_error;
  FileError(const FileError&) = default;
  FileError& operator=(const FileError&) = default;
  ~FileError() override;
};

}  // namespace composer::saving
