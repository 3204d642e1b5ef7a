#pragma once
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "composer/checkpoint/file_system.h"
#include "composer/checkpoint/manifest.h"
#include "composer/checkpoint/option_names.h"
#include "composer/core/export.h"
#include "composer/formats/sink.h"

namespace composer::util {
class FileLock;
}  // namespace composer::util

namespace composer::saving {

using formats::PlacedSink;

// Writes a file of a checkpoint to the sink, and returns its checksum.
struct NewFile {
  std::string name;
  std::function<std::string(const PlacedSink&)> write;
};

struct Found {
  std::filesystem::path path;
  Manifest manifest;
};

// A folder of checkpoints, each a folder of its own that appears whole or not at all: written under a temporary name,
// every file synced, then renamed. A link, such as "latest", is moved to it afterwards. After a kill or a power failure
// at any moment, each name is either missing or a complete checkpoint. Use from one thread at a time.
class COMPOSER_EXPORT CheckpointFolder {
 public:
  // Temporary names contain `run_id`. Creates nothing before write(). `names`: the names of options in errors.
  CheckpointFolder(std::filesystem::path path, std::string run_id, FileSystem& files, OptionNames names = {});

  // Writes a checkpoint; `manifest` lacks its files. A checkpoint with the same name is replaced in one step; with an
  // empty `latest` no link is moved. Throws ConfigError for a name that check_name() rejects. Throws CheckpointError if
  // the name lies inside another checkpoint; if anything but a checkpoint of this run has the name, also if it appeared
  // during the write, unless `overwrite` is set; or if anything but a link has the name `latest`. Throws FileError on
  // an I/O error. After an error the previous contents are in place, unless only a step after the renaming failed;
  // holds() distinguishes the two.
  // With `parts`, also waits for the parts, which become files of the checkpoint.
  class Parts;
  void write(Manifest manifest, const std::vector<NewFile>& files, const std::string& latest, bool overwrite = false,
             Parts* parts = nullptr);
  // Makes the temporary folder of a checkpoint to which other processes write files with these names. The destructor of
  // the result removes it, unless write() has put it in place. Patience is called by write(): how long to wait for
  // parts after a rank was lost; nullopt: no rank is lost.
  using Patience = std::function<std::optional<std::chrono::steady_clock::duration>()>;
  std::unique_ptr<Parts> open_parts(std::vector<std::string> names, std::string id, Patience patience);
  // Makes `link` lead to the checkpoint of that name. Throws like write().
  void point(const std::string& link, const std::string& name);
  // Removes the link if it leads to a checkpoint of this run or of another run named `run_name`, or leads nowhere.
  void unlink(const std::string& link, const std::string& run_name);
  // Adds metrics to the manifest of the checkpoint of this run with this id, except those that it has already. The
  // manifest is replaced in one step. Returns whether any was added.
  bool add_metrics(const std::string& name, const std::string& id, const std::map<std::string, double>& metrics);
  // Whether exactly this checkpoint is in place. Does not throw.
  bool holds(const Manifest& manifest) const;
  // Makes the name `latest` available for a link. A copy of the folder that was made by following links contains a copy
  // of a checkpoint under that name. If it is a checkpoint of this run, it gets back its own name, or is removed if
  // that name has a complete checkpoint. Throws CheckpointError for any other file or folder named `latest`.
  void free_link(const std::string& latest);
  // Writes a small file in the way of write(), and removes it. Throws FileError.
  void probe();
  // Deletes checkpoints of this run; missing ones are not an error. Everything else is kept, with a warning if the name
  // leads out of the folder or the checkpoint cannot be read. Returns the names of those that could not be deleted
  // because of an I/O error.
  std::vector<std::string> remove(const std::vector<std::string>& names);
  // Removes unfinished checkpoints of dead processes, of this run and of others.
  void remove_leftovers();
  void take_run_id(std::string run_id) { run_id_ = std::move(run_id); }

  const std::filesystem::path& path() const { return path_; }

 private:
  struct Temporary {
    std::unique_ptr<util::FileLock> lock;  // must outlive the path
    TemporaryPath path;
  };
  std::filesystem::path temporary_name() const;
  Temporary make_temporary();
  void write_files(const std::filesystem::path& folder, const std::vector<NewFile>& files, Manifest& manifest,
                   const Parts* parts);
  void check_free(const std::string& name, bool overwrite) const;
  void check_link(const std::string& latest) const;
  bool is_own(const std::string& name) const;
  [[noreturn]] void fail_taken(const std::filesystem::path& target) const;
  void put_in_place(TemporaryPath& made, const std::string& name, bool overwrite);
  void replace(TemporaryPath& made, const std::string& name, bool overwrite);
  void replace_slowly(TemporaryPath& made, const std::string& name, bool overwrite);
  void require_own(TemporaryPath& taken, const std::string& name, const std::function<bool()>& put_back);
  void rename_copy(const std::string& latest);
  std::optional<Temporary> take_away(const std::string& name);
  void remove_in_place(const std::filesystem::path& path);
  void finish_replacing(const std::string& name);
  std::optional<std::string> spare_of(const std::string& name) const;
  void move_link(const std::filesystem::path& link, const std::filesystem::path& target);
  void make_folders(const std::filesystem::path& path);

  std::filesystem::path path_;
  std::string run_id_;
  FileSystem& files_;
  OptionNames names_;
};

// A temporary folder that other processes write to.
class COMPOSER_EXPORT CheckpointFolder::Parts {
 public:
  ~Parts();
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;
  std::filesystem::path path() const;            // absolute
  const std::string& id() const { return id_; }  // of the checkpoint

 private:
  friend class CheckpointFolder;
  Parts(Temporary temporary, std::vector<std::string> names, std::string id, Patience patience);

  Temporary temporary_;
  std::vector<std::string> names_;
  std::string id_;
  Patience patience_;
  bool complete_ = false;  // every file is written; only put_in_place() is left
};

// The checkpoints below a save folder.
struct Listing {
  struct Unreadable {
    std::filesystem::path path;
    std::string reason;
    bool newer = false;  // written by a newer libcomposer
  };
  std::vector<Found> checkpoints;      // with a valid manifest, oldest first
  std::vector<Unreadable> unreadable;  // with a damaged manifest, or one of a newer version
};
// All of these throw FileError for paths that cannot be read; such paths are never treated as missing.
COMPOSER_EXPORT Listing list_folder(const std::filesystem::path& folder, FileSystem& files = real_files());
// The readable checkpoints of a folder.
COMPOSER_EXPORT std::vector<Found> list_checkpoints(const std::filesystem::path& folder,
                                                    FileSystem& files = real_files());
// Suffix of a checkpoint that is to replace one without the suffix, until that one is removed.
constexpr const char* kSpare = ".new";

// The checkpoints that were written by a saver with this folder, under their own names. Excludes copies under other
// names, and checkpoints that a saver with a folder below this one has written.
COMPOSER_EXPORT std::vector<Found> checkpoints_of_saver(const std::filesystem::path& folder,
                                                        FileSystem& files = real_files());
// The checkpoint at a path, which may be its folder or a link to it. Throws CheckpointError if it is missing or its
// manifest is damaged.
COMPOSER_EXPORT Found open_checkpoint(const std::filesystem::path& path, FileSystem& files = real_files());
// Whether its files exist and have the sizes in the manifest; contents are verified when they are read.
COMPOSER_EXPORT bool has_all_files(const Found& found, FileSystem& files);
// Whether the path is a readable checkpoint of this run, or of a run that was resumed from it.
COMPOSER_EXPORT bool is_of_run(const std::filesystem::path& path, const std::string& run_id, FileSystem& files);

// Of checkpoints_of_saver(), the one that the link leads to, if it `fits` and its files exist; otherwise the newest
// such one, with a warning if the link's is damaged. nullopt if there is none. Throws CheckpointError with a remedy if
// none fits and some could not be read, or if a candidate has a newer version.
COMPOSER_EXPORT std::optional<Found> find_latest(
    const std::filesystem::path& folder, const std::string& latest,
    const std::function<bool(const Manifest&)>& fits = [](const Manifest&) { return true; },
    FileSystem& files = real_files());

}  // namespace composer::saving
