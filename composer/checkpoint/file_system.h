#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "composer/core/export.h"

namespace composer::saving {

// The file operations of checkpoints. Each throws FileError. Tests replace this by an implementation that fails, or
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

  virtual Type type(const Path& path);                             // does not follow links: LINK; NONE: missing
  virtual std::vector<Item> list(const Path& folder);              // the entries, sorted by name
  virtual std::string read(const Path& file, std::uint64_t most);  // the whole file; EFBIG if larger than `most`
  virtual std::uint64_t size(const Path& file);
  virtual Path canonical(const Path& path);  // absolute path without links

  virtual void make_folder(const Path& path);  // must not exist
  virtual int create(const Path& path);        // must not exist; returns the descriptor
  virtual void write(int file, const Path& path, std::uint64_t offset, const void* data,
                     std::size_t size);  // all of it
  // Starts writing this part of the file to the disk, without waiting.
  virtual void start_sync(int file, const Path& path, std::uint64_t offset, std::uint64_t size);
  virtual void sync(int file, const Path& path);          // returns when its data is on the disk
  virtual void close(int file, const Path& path);         // also closes if it throws
  virtual void sync_folder(const Path& path);             // returns when the names in it are on the disk
  virtual void rename(const Path& from, const Path& to);  // atomically replaces an existing path
  // Renames atomically unless the new name exists; returns false if it does. A file system without this operation, such
  // as NFS, still replaces no file by a folder and no folder that is not empty.
  virtual bool rename_if_free(const Path& from, const Path& to);
  // Exchanges two existing paths atomically. Returns false if the file system cannot do that (NFS), or cannot do it
  // with these paths (an overlay, with a folder from the image of a container).
  virtual bool exchange(const Path& a, const Path& b);
  // Creates a symbolic link; must not exist. Returns false if the file system has no links.
  virtual bool make_link(const Path& target, const Path& path);
  virtual void remove(const Path& path);  // recursively; a missing path is not an error
};

// The real file system.
COMPOSER_EXPORT FileSystem& real_files();

// An I/O error.
struct COMPOSER_EXPORT FileError : std::filesystem::filesystem_error {
  using filesystem_error::filesystem_error;
  FileError(const FileError&) = default;
  FileError& operator=(const FileError&) = default;
  ~FileError() override;
  bool is_missing() const;  // the path does not exist
  bool is_denied() const;   // no permission
};

// One spelling for all paths of the same folder, whether the folder exists already or not. A path that cannot be
// resolved is returned as given.
COMPOSER_EXPORT std::filesystem::path canonical_folder(const std::filesystem::path& folder);

// A path that is removed at the end of the scope unless release() was called.
class COMPOSER_EXPORT TemporaryPath {
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
