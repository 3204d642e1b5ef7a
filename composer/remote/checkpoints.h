#pragma once
// Checkpoints below a URI. A checkpoint is complete there if its manifest.json exists and is not empty, because that
// file is written last and removed first. A checkpoint that replaces one with the same name is first completed in a
// folder of its own (see files.h).
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

// The folder of this machine to which the checkpoints of a URI are written before they are uploaded: below `staging`
// or, if that is empty, below $XDG_CACHE_HOME/libcomposer/uploads or ~/.cache/libcomposer/uploads. Each endpoint of S3
// has its own folder. A save_folder that is not a URI is returned unchanged.
COMPOSER_EXPORT std::string local_save_folder(const std::string& save_folder, const std::string& staging = {});

struct RemoteCheckpoint {
  std::string folder;  // folder of its files in the store
  saving::Manifest manifest;
  std::string name() const;
  // Whether it was written in this place, not by another saver into a folder of its own.
  bool is_in_place() const { return name() == manifest.name; }
};

// Thrown if a checkpoint was replaced or deleted while it was read.
struct COMPOSER_EXPORT ReplacedError : CheckpointError {
  using CheckpointError::CheckpointError;
  ReplacedError(const ReplacedError&) = default;
  ReplacedError& operator=(const ReplacedError&) = default;
  ~ReplacedError() override;
};

// The newest complete checkpoint that `fits`; nullopt: there is none. Checkpoints that are replaced meanwhile are
// looked up again. Throws CheckpointError if none fits and some could not be read, and the errors of the store.
COMPOSER_EXPORT std::optional<RemoteCheckpoint> find_newest(net::RemoteStore& store,
                                                            const std::function<bool(const RemoteCheckpoint&)>& fits);

// Downloads a checkpoint to a name in a folder, where it appears completely or not at all and replaces one with the
// same name. Returns its path. Throws ReplacedError if it was replaced or deleted meanwhile. Temporary files are in a
// folder beside it, which the next start removes if the process is killed.
COMPOSER_EXPORT std::filesystem::path download(net::RemoteStore& store, const RemoteCheckpoint& checkpoint,
                                               const std::filesystem::path& folder, const std::string& name);

// Downloads a checkpoint, to its own name unless another is given. If it was replaced meanwhile, downloads the
// checkpoint that again() returns.
// Throws ReplacedError if that happens several times.
COMPOSER_EXPORT std::filesystem::path download_unreplaced(net::RemoteStore& store, RemoteCheckpoint found,
                                                          const std::function<std::optional<RemoteCheckpoint>()>& again,
                                                          const std::filesystem::path& folder,
                                                          const std::string& name = {});

// Removes temporary files that killed processes have left of downloads, beside this folder and in the folder of
// temporary files.
COMPOSER_EXPORT void remove_leftover_downloads(const std::filesystem::path& folder);

// Prefixes of the folders of temporary files: for a load_path, and for small files.
constexpr const char *kLoadPrefix = "composer-load-", *kFetchPrefix = "composer-fetch-";

// The manifest of a checkpoint in the store. Throws CheckpointError if it is damaged.
COMPOSER_EXPORT saving::Manifest read_manifest(net::RemoteStore& store, const std::string& name,
                                               const std::stop_token& stop = {});

// Downloads what a URI names into `folder` and returns its path there: a checkpoint, the newest checkpoint of a folder,
// or a file.
COMPOSER_EXPORT std::filesystem::path download_from(const std::string& uri, const std::filesystem::path& folder);

struct RemoteMirrorOptions {
  std::string uri;
  std::string run_name;
  bool overwrite = false;  // also replaces checkpoints of other runs
  saving::OnFailure on_failure = saving::OnFailure::FAIL;
  std::chrono::duration<double> longest_wait{3600};  // limit for wait() without a limit
  // >= 1. Limits the number of uploads at the start, so that the queue has room for others. With more checkpoints,
  // several become one upload.
  std::size_t most_first_uploads = 512;
  net::StoreOptions store = {};
};

// Uploads checkpoints on a background thread. Queued files are hard links beside the save folder, so that the
// checkpoint may be deleted meanwhile. Another process that saves the same run there is detected: see RemoteOwner.
COMPOSER_EXPORT std::shared_ptr<saving::Mirror> make_remote_mirror(RemoteMirrorOptions options);

}  // namespace composer
