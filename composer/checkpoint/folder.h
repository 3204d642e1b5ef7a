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
  // Temporary names contain `run_id`. Nothing is created before write(). `names`: what errors call the options.
  CheckpointFolder(std::filesystem::path path, std::string run_id, FileSystem& files, OptionNames names = {});

  // `manifest` without its files. A checkpoint of the same name is replaced in one step; an empty `latest` moves no
  // link. Throws ConfigError for a name that check_name() rejects; CheckpointError if the name lies inside another
  // checkpoint, or is taken by anything but a checkpoint of this run, also if that came while this one was being
  // written, unless `overwrite` is set, or if anything but a link has the name `latest`; FileError on an I/O error. The
  // previous contents stay in place, unless only a step after the renaming failed: holds() tells.
  // With `parts`, it also waits for these, and they belong to the checkpoint.
  class Parts;
  void write(Manifest manifest, const std::vector<NewFile>& files, const std::string& latest, bool overwrite = false,
             Parts* parts = nullptr);
  // Makes the temporary folder of a checkpoint of which other processes write files of these names. It is removed with
  // the result, unless write() has put it in place. Patience: how long to wait for parts after a rank was lost;
  // nullopt: none is lost. Called by write().
  using Patience = std::function<std::optional<std::chrono::steady_clock::duration>()>;
  std::unique_ptr<Parts> open_parts(std::vector<std::string> names, std::string id, Patience patience);
  // Makes `link` lead to the checkpoint of that name. Throws as write() does.
  void point(const std::string& link, const std::string& name);
  // Removes the link if it leads to a checkpoint of this run, or of another one of that name, or nowhere.
  void unlink(const std::string& link, const std::string& run_name);
  // Adds metrics that it has not to the manifest of the checkpoint of this run with that id, which is replaced in one
  // step. Returns whether there was one to add them to.
  bool add_metrics(const std::string& name, const std::string& id, const std::map<std::string, double>& metrics);
  // Whether exactly this checkpoint is in place. Does not throw.
  bool holds(const Manifest& manifest) const;
  // Makes the name `latest` free for a link. A copy that was made with links followed has a copy of a checkpoint there:
  // if it is one of this run, it gets that checkpoint's name, or is removed if that is there and complete. Throws
  // CheckpointError for any other file or folder of that name.
  void free_link(const std::string& latest);
  // Writes a small file, as write() would, and removes it. Throws FileError.
  void probe();
  // Deletes checkpoints of this run; missing ones are no error. Everything else is kept, with a warning if the name
  // leaves the folder or the checkpoint cannot be read. Returns the names of those that could not be deleted because of
  // an I/O error.
  std::vector<std::string> remove(const std::vector<std::string>& names);
  // Removes unfinished checkpoints of dead processes, of this run and of others.
  void remove_leftovers();
  void take_run_id(std::string run_id) { run_id_ = std::move(run_id); }

  const std::filesystem::path& path() const { return path_; }

 private:
  struct Temporary {
    std::unique_ptr<util::FileLock> lock;  // outlives the path
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

// A folder that other processes write to.
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
  bool complete_ = false;  // every file is written; what is left is to put it in place
};

// The checkpoints below a save folder.
struct Listing {
  struct Unreadable {
    std::filesystem::path path;
    std::string reason;
    bool newer = false;  // written by a newer libcomposer
  };
  std::vector<Found> checkpoints;      // with a valid manifest, oldest first
  std::vector<Unreadable> unreadable;  // whose manifest is damaged or of a newer version
};
// All throw FileError for paths that cannot be read; these are never treated as missing.
COMPOSER_EXPORT Listing list_folder(const std::filesystem::path& folder, FileSystem& files = real_files());
// The readable ones.
COMPOSER_EXPORT std::vector<Found> list_checkpoints(const std::filesystem::path& folder,
                                                    FileSystem& files = real_files());
// Behind the name of a checkpoint: what replaces it, until that has gone.
constexpr const char* kSpare = ".new";

// Those that whoever saves into this folder has written, where they are: a copy under another name, and one below that
// another saver has written into a folder of its own, are none of them.
COMPOSER_EXPORT std::vector<Found> checkpoints_of_saver(const std::filesystem::path& folder,
                                                        FileSystem& files = real_files());
// The checkpoint at a path, which is its folder or a link to it. Throws CheckpointError if it is missing or its
// manifest is damaged.
COMPOSER_EXPORT Found open_checkpoint(const std::filesystem::path& path, FileSystem& files = real_files());
// Whether its files exist with the sizes in the manifest; contents are verified when they are read.
COMPOSER_EXPORT bool has_all_files(const Found& found, FileSystem& files);
// Whether a readable checkpoint of this run exists, or of one that was resumed from it.
COMPOSER_EXPORT bool is_of_run(const std::filesystem::path& path, const std::string& run_id, FileSystem& files);

// Of checkpoints_of_saver() that of the link, if it `fits` and its files exist; otherwise the newest such one, with a
// warning if the link's is damaged. nullopt if none exists. Throws CheckpointError with a remedy if none fits and some
// could not be read, or if a candidate has a newer version.
COMPOSER_EXPORT std::optional<Found> find_latest(
    const std::filesystem::path& folder, const std::string& latest,
    const std::function<bool(const Manifest&)>& fits = [](const Manifest&) { return true; },
    FileSystem& files = real_files());

}  // namespace composer::saving
