#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "composer/core/export.h"

namespace composer::saving {

// The calls by which checkpoints read and change a disk. Each throws FileError. Tests replace it by one that fails, or
// ends the process, at the n-th call.
class COMPOSER_EXPORT FileSystem {
 public:
  using Path = std::filesystem::path;
  enum class Type : std::uint8_t { NONE, FILE, FOLDER, LINK, OTHER };
  struct Item {
    std::string name;
    Type type = Type::OTHER;
  };
  virtual ~FileSystem();

  virtual Type type(const Path& path);                             // a link is a LINK; NONE: there is nothing
  virtual std::vector<Item> list(const Path& folder);              // what is in it, sorted by name
  virtual std::string read(const Path& file, std::uint64_t most);  // all of it; EFBIG if it has more bytes
  virtual std::uint64_t size(const Path& file);
  virtual Path canonical(const Path& path);  // absolute and without links

  virtual void make_folder(const Path& path);  // must not exist
  virtual int create(const Path& path);        // a file that does not exist; returns its descriptor
  virtual void write(int file, const Path& path, std::uint64_t offset, const void* data,
                     std::size_t size);  // all of it
  // Begins to put that part on the disk, without waiting for it.
  virtual void start_sync(int file, const Path& path, std::uint64_t offset, std::uint64_t size);
  virtual void sync(int file, const Path& path);          // its data are on the disk
  virtual void close(int file, const Path& path);         // closed, also if it throws
  virtual void sync_folder(const Path& path);             // the names in it are on the disk
  virtual void rename(const Path& from, const Path& to);  // replaces what is there, in one step
  // Both exist, and change names in one step. False: this disk cannot do that, NFS for one.
  virtual bool exchange(const Path& a, const Path& b);
  // Symbolic; must not exist. False: this disk has no such links.
  virtual bool make_link(const Path& target, const Path& path);
  virtual void remove(const Path& path);  // with everything in it; a missing path is fine
};

// The machine's own, for those who only read.
COMPOSER_EXPORT FileSystem& real_files();

// An error of the system.
struct COMPOSER_EXPORT FileError : std::filesystem::filesystem_error {
  using filesystem_error::filesystem_error;
  FileError(const FileError&) = default;
  FileError& operator=(const FileError&) = default;
  ~FileError() override;
  bool is_missing() const;  // there is nothing under that path
  bool is_denied() const;   // no permission
};

// A path that is removed at the end of the scope, unless it is released.
class TemporaryPath {
 public:
  TemporaryPath(FileSystem& files, std::filesystem::path path);
  TemporaryPath(TemporaryPath&& other) noexcept;
  TemporaryPath& operator=(TemporaryPath&&) = delete;
  ~TemporaryPath();
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path release();

 private:
  FileSystem& files_;
  std::filesystem::path path_;
};

}  // namespace composer::saving
