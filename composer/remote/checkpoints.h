#pragma once
// Checkpoints below a URI. A checkpoint is complete there if its manifest.json exists and is not empty: that is written
// last and removed first. One that replaces another of its name is complete in a folder of its own before (see
// remote_files.h).
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "composer/checkpoint/manifest.h"
#include "composer/checkpoint/mirror.h"
#include "composer/checkpoint/save_options.h"
#include "composer/core/export.h"
#include "composer/net/remote_store.h"

namespace composer {

// The folder of this machine in which the checkpoints of a URI are written before they are uploaded: below `staging`,
// or if that is empty below $XDG_CACHE_HOME/libcomposer/uploads or ~/.cache/libcomposer/uploads. Another endpoint of S3
// is another folder. A save_folder that is no URI is returned as it is.
COMPOSER_EXPORT std::string local_save_folder(const std::string& save_folder, const std::string& staging = {});

struct RemoteCheckpoint {
  std::string folder;  // of its files in the store
  saving::Manifest manifest;
  std::string name() const;
  // Whether it was written there, and not by another saver into a folder of its own.
  bool is_in_place() const { return name() == manifest.name; }
};

// A checkpoint was replaced or deleted while it was read.
struct COMPOSER_EXPORT ReplacedError : CheckpointError {
  using CheckpointError::CheckpointError;
  ReplacedError(const ReplacedError&) = default;
  ReplacedError& operator=(const ReplacedError&) = default;
  ~ReplacedError() override;
};

// The newest complete checkpoint that `fits`; nullopt: there is none. What is replaced meanwhile is looked at again.
// Throws CheckpointError if none fits and some could not be read, and what the store throws.
COMPOSER_EXPORT std::optional<RemoteCheckpoint> find_newest(net::RemoteStore& store,
                                                            const std::function<bool(const RemoteCheckpoint&)>& fits);

// Downloads a checkpoint to a name in a folder, where it appears whole or not at all and replaces one of that name.
// Returns its path. Throws ReplacedError if it was replaced or deleted meanwhile. Temporary files are in a folder
// beside it, which is removed at the next start if the process is killed.
COMPOSER_EXPORT std::filesystem::path download(net::RemoteStore& store, const RemoteCheckpoint& checkpoint,
                                               const std::filesystem::path& folder, const std::string& name);

// Downloads a checkpoint, to its own name unless another is given. If it was replaced meanwhile, downloads what again()
// returns.
// Throws ReplacedError if that happens several times.
COMPOSER_EXPORT std::filesystem::path download_unreplaced(net::RemoteStore& store, RemoteCheckpoint found,
                                                          const std::function<std::optional<RemoteCheckpoint>()>& again,
                                                          const std::filesystem::path& folder,
                                                          const std::string& name = {});

// Removes what killed processes have left of downloads, beside this folder and in the folder of temporary files.
COMPOSER_EXPORT void remove_leftover_downloads(const std::filesystem::path& folder);

// Prefixes of the folders of temporary files: for a load_path, and for small files.
constexpr const char *kLoadPrefix = "composer-load-", *kFetchPrefix = "composer-fetch-";

// The manifest of a checkpoint in the store. Throws CheckpointError if it is damaged.
COMPOSER_EXPORT saving::Manifest read_manifest(net::RemoteStore& store, const std::string& name,
                                               const std::stop_token& stop = {});

// What a URI names: a checkpoint, a folder of checkpoints (the newest is taken), or a file. Downloaded into `folder`,
// and its path there.
COMPOSER_EXPORT std::filesystem::path download_from(const std::string& uri, const std::filesystem::path& folder);

struct RemoteMirrorOptions {
  std::string uri;
  std::string run_name;
  bool overwrite = false;  // also replace checkpoints of other runs
  saving::OnFailure on_failure = saving::OnFailure::FAIL;
  std::chrono::duration<double> longest_wait{3600};  // of wait() without a limit
  // >= 1; at the start, so that the queue has room for others. Of more checkpoints, several are one upload
  std::size_t most_first_uploads = 512;
  net::StoreOptions store = {};
};

// Uploads checkpoints on a background thread. Files that wait are hard links beside the save folder, so that the
// checkpoint may be deleted meanwhile. Another process that saves the same run there is detected: see RemoteOwner.
COMPOSER_EXPORT std::shared_ptr<saving::Mirror> make_remote_mirror(RemoteMirrorOptions options);

}  // namespace composer
