#pragma once
// How the files of one checkpoint are uploaded, replaced and deleted below a URI. Internal.
#include <filesystem>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>

#include "composer/checkpoint/manifest.h"
#include "composer/net/remote_store.h"

namespace composer {

// A checkpoint that replaces one of its name is complete in a folder of this name within it before that is touched. So
// at each moment one of both is complete, and there is a mix of both at none.
constexpr const char* kStagedFolder = ".new";

std::string manifest_of(const std::string& checkpoint);  // the name of the file
std::string staged_name(const std::string& checkpoint);  // of the checkpoint in kStagedFolder
// The name of the checkpoint, of which a listing may have the one in kStagedFolder.
std::string without_staged_folder(const std::string& checkpoint);

// The manifest of a complete checkpoint; nullopt: there is none.
std::optional<saving::Manifest> find_manifest(net::RemoteStore& store, const std::string& name,
                                              const std::stop_token& stop);

struct RemoteManifests {
  std::optional<saving::Manifest> plain, staged;
  bool has_staged_files = false;  // also without a manifest
  // The newer one.
  const std::optional<saving::Manifest>& current() const { return staged ? staged : plain; }
};
RemoteManifests find_manifests(net::RemoteStore& store, const std::string& name, const std::stop_token& stop);

struct LocalCheckpoint {
  const saving::Manifest& manifest;
  std::function<std::filesystem::path(const std::string& file)> path;
};

// Uploads the files, the manifest last, in the place of what find_manifests() has found. `look` is called before
// anything becomes visible, and may throw.
void put_checkpoint(net::RemoteStore& store, const LocalCheckpoint& checkpoint, const std::string& name,
                    const RemoteManifests& before, const std::function<void()>& look, const std::stop_token& stop);

// Deletes the files of the manifests, and of uploads that were cut off, if `is_own`. All other files stay.
void remove_checkpoint(net::RemoteStore& store, const std::string& name,
                       const std::function<bool(const saving::Manifest&)>& is_own, const std::stop_token& stop);

// Removes the files of this checkpoint in kStagedFolder, and those of uploads that were cut off.
void remove_staged(net::RemoteStore& store, const std::string& name, const std::optional<saving::Manifest>& staged,
                   const std::stop_token& stop);

// Whether the credentials do not permit the request.
bool is_forbidden(const net::HttpError& error);

}  // namespace composer
