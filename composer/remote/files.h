#pragma once
// Uploads, replaces and deletes the files of one checkpoint below a URI. Internal.
#include <filesystem>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>

#include "composer/checkpoint/manifest.h"
#include "composer/net/remote_store.h"

namespace composer {

// A checkpoint that replaces one with the same name is first completed in a folder with this name inside it. At each
// moment one of the two is complete, and their files are never mixed.
constexpr const char* kStagedFolder = ".new";

std::string manifest_of(const std::string& checkpoint);  // name of the checkpoint's manifest file
std::string staged_name(const std::string& checkpoint);  // name of the checkpoint in kStagedFolder
// The name of the checkpoint, given the name in a listing, which may be that of the one in kStagedFolder.
std::string without_staged_folder(const std::string& checkpoint);

// The manifest of a complete checkpoint; nullopt: there is no complete one.
std::optional<saving::Manifest> find_manifest(net::RemoteStore& store, const std::string& name,
                                              const std::stop_token& stop);

struct RemoteManifests {
  std::optional<saving::Manifest> plain, staged;
  bool has_staged_files = false;  // true also without a manifest
  // The newer of the two.
  const std::optional<saving::Manifest>& current() const { return staged ? staged : plain; }
};
RemoteManifests find_manifests(net::RemoteStore& store, const std::string& name, const std::stop_token& stop);

struct LocalCheckpoint {
  const saving::Manifest& manifest;
  std::function<std::filesystem::path(const std::string& file)> path;
};

// Uploads the files, the manifest last, replacing the checkpoint that find_manifests() has found. `look` is called
// before anything becomes visible, and may throw.
void put_checkpoint(net::RemoteStore& store, const LocalCheckpoint& checkpoint, const std::string& name,
                    const RemoteManifests& before, const std::function<void()>& look, const std::stop_token& stop);

// Deletes the files in the manifests and, if `is_own`, those of interrupted uploads. All other files are kept.
void remove_checkpoint(net::RemoteStore& store, const std::string& name,
                       const std::function<bool(const saving::Manifest&)>& is_own, const std::stop_token& stop);

// Removes the files of this checkpoint in kStagedFolder, and those of interrupted uploads.
void remove_staged(net::RemoteStore& store, const std::string& name, const std::optional<saving::Manifest>& staged,
                   const std::stop_token& stop);

// Whether the error means that the credentials do not permit the request.
bool is_forbidden(const net::HttpError& error);

}  // namespace composer
