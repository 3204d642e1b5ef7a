#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "composer/checkpoint/file_system.h"
#include "composer/checkpoint/manifest.h"
#include "composer/core/export.h"
#include "composer/formats/sink.h"

namespace composer::saving {

using formats::PlacedSink;

// A file of a checkpoint: hands its bytes to the sink, and returns its checksum.
struct NewFile {
  std::string name;
  std::function<std::string(const PlacedSink&)> write;
};

struct Found {
  std::filesystem::path path;
  Manifest manifest;
};

class FolderLock;

// A folder of checkpoints, each a folder of its own that appears whole or not at all: written under a temporary name,
// every file synced, then renamed. A link, "latest" say, is moved to it afterwards. Whatever happens in between, each
// name is either not there or a whole checkpoint, also when power fails. Not for several threads at once.
class COMPOSER_EXPORT CheckpointFolder {
 public:
  // `run_id` is a part of temporary names. Nothing is made before write().
  CheckpointFolder(std::filesystem::path path, std::string run_id, FileSystem& files);

  // `manifest` without its files. One of the same name is replaced in one step; an empty `latest` moves no link.
  // Throws FileError if the disk refuses; then there is what was there before.
  // What is there under that name and is no checkpoint of this run is replaced only if `overwrite`, else
  // CheckpointError.
  void write(Manifest manifest, const std::vector<NewFile>& files, const std::string& latest, bool overwrite = false);
  // Those that were written here; not being there is fine. Returns the names of those that the disk did not let go.
  std::vector<std::string> remove(const std::vector<std::string>& names);
  // What processes that are dead have left of checkpoints that they had not finished, of this run and of others.
  void remove_leftovers();

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path temporary() const;
  std::unique_ptr<FolderLock> make_temporary(std::filesystem::path& made);
  void write_files(const std::filesystem::path& folder, const std::vector<NewFile>& files, Manifest& manifest);
  void check_free(const std::filesystem::path& target) const;
  void replace_slowly(const std::filesystem::path& made, const std::filesystem::path& target);
  std::optional<std::string> spare_of(const std::string& name) const;
  void put_in_place(const std::filesystem::path& made, const std::filesystem::path& target);
  void move_link(const std::string& latest, const std::filesystem::path& target);
  void make_folders(const std::filesystem::path& path);

  std::filesystem::path path_;
  std::string run_id_;
  FileSystem& files_;
};

// Those below the folder that have a whole manifest, oldest first; damaged ones are left out.
COMPOSER_EXPORT std::vector<Found> list_checkpoints(const std::filesystem::path& folder);
// The checkpoint that a path means: its folder, or a link to it. Throws CheckpointError if there is none, or its
// manifest is damaged.
COMPOSER_EXPORT Found open_checkpoint(const std::filesystem::path& path);
// Whether that is a checkpoint, and of this run or one that it goes on from.
bool is_of_run(const std::filesystem::path& path, const std::string& run_id);
// The one that the link means, if it and its files are there; otherwise the newest whole one in the folder.
COMPOSER_EXPORT std::optional<Found> find_latest(const std::filesystem::path& folder, const std::string& latest);

}  // namespace composer::saving
