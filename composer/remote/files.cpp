#include "composer/remote/files.h"

#include <algorithm>
#include <fstream>
#include <vector>

#include "composer/checkpoint/parts.h"
#include "composer/checkpoint/saver.h"
#include "composer/checkpoint/scratch.h"
#include "composer/core/error.h"
#include "composer/remote/checkpoints.h"

namespace composer {

namespace fs = std::filesystem;
using saving::Manifest;

namespace {

// Makes the checkpoint incomplete. Without permission to delete, replaces the manifest by an empty file.
void hide(net::RemoteStore& store, const std::string& checkpoint, const std::stop_token& stop) {
  try {
    store.remove(manifest_of(checkpoint), stop);
  } catch (const net::HttpError& error) {
    if (!is_forbidden(error)) throw;
    const saving::Scratch scratch(fs::temp_directory_path(), kFetchPrefix);
    const fs::path empty = scratch.path() / "empty";
    std::ofstream(empty).close();
    store.put(empty, manifest_of(checkpoint), stop);
  }
}

void put_files(net::RemoteStore& store, const LocalCheckpoint& checkpoint, const std::string& name,
               const std::function<void()>& look, const std::stop_token& stop) {
  for (const Manifest::File& file : checkpoint.manifest.files)
    store.put(checkpoint.path(file.name), name + "/" + file.name, stop);
  look();  // again, because large files take long
  store.put(checkpoint.path(Manifest::kFileName), manifest_of(name), stop);
}

std::vector<std::string> files_of(const std::optional<Manifest>& manifest) {
  std::vector<std::string> names = {saving::kModelFile, saving::kStateFile};  // also those of an interrupted upload
  if (manifest)
    for (const Manifest::File& file : manifest->files) names.push_back(file.name);
  return names;
}

// Removes the manifest first. Removes only existing files, because deletions of missing objects leave markers in
// buckets with versions.
void remove_files(net::RemoteStore& store, const std::string& folder, const std::vector<std::string>& files,
                  const std::stop_token& stop) {
  const std::vector<net::RemoteFile> there = store.list(folder + "/", stop);
  const auto remove_own = [&](const std::string& file) {
    const std::string name = folder + "/" + file, temporary = name + ".tmp-";  // also removed
    if (std::ranges::any_of(
            there, [&](const net::RemoteFile& one) { return one.name == name || one.name.starts_with(temporary); }))
      store.remove(name, stop);
  };
  remove_own(Manifest::kFileName);
  for (const std::string& file : files) remove_own(file);
  for (const net::RemoteFile& one : there) {  // parts of an interrupted upload
    const std::string file = one.name.substr(folder.size() + 1);
    const std::string whole = file.substr(0, file.find(".tmp-"));
    if (saving::is_part_name(whole) && std::ranges::find(files, whole) == files.end())
      store.remove(join(folder, '/', whole), stop);
  }
}

}  // namespace

std::string manifest_of(const std::string& checkpoint) { return checkpoint + "/" + Manifest::kFileName; }

std::string staged_name(const std::string& checkpoint) { return checkpoint + "/" + kStagedFolder; }

std::string without_staged_folder(const std::string& checkpoint) {
  const std::string end = std::string("/") + kStagedFolder;
  return checkpoint.ends_with(end) ? checkpoint.substr(0, checkpoint.size() - end.size()) : checkpoint;
}

std::optional<Manifest> find_manifest(net::RemoteStore& store, const std::string& name, const std::stop_token& stop) {
  if (store.size(manifest_of(name), stop).value_or(0) == 0) return std::nullopt;
  return read_manifest(store, name, stop);
}

RemoteManifests find_manifests(net::RemoteStore& store, const std::string& name, const std::stop_token& stop) {
  RemoteManifests found{.plain = find_manifest(store, name, stop)};
  const std::string staged = staged_name(name);
  for (const net::RemoteFile& file : store.list(staged + "/", stop)) {
    found.has_staged_files = true;
    if (file.name == manifest_of(staged) && file.size > 0) found.staged = read_manifest(store, staged, stop);
  }
  return found;
}

void put_checkpoint(net::RemoteStore& store, const LocalCheckpoint& checkpoint, const std::string& name,
                    const RemoteManifests& before, const std::function<void()>& look, const std::stop_token& stop) {
  const std::string staged = staged_name(name);
  const bool is_staged = before.staged && before.staged->id == checkpoint.manifest.id;
  if (before.plain) {
    if (before.staged && !is_staged) hide(store, staged, stop);
    if (!is_staged) put_files(store, checkpoint, staged, look, stop);
    look();
    hide(store, name, stop);
  }
  put_files(store, checkpoint, name, look, stop);
  if (before.plain || before.has_staged_files)
    remove_staged(store, name, before.plain ? checkpoint.manifest : before.staged, stop);
}

void remove_staged(net::RemoteStore& store, const std::string& name, const std::optional<Manifest>& staged,
                   const std::stop_token& stop) {
  try {
    remove_files(store, staged_name(name), files_of(staged), stop);
  } catch (const net::HttpError& error) {
    if (!is_forbidden(error)) throw;
    hide(store, staged_name(name), stop);
  }
}

void remove_checkpoint(net::RemoteStore& store, const std::string& name,
                       const std::function<bool(const Manifest&)>& is_own, const std::stop_token& stop) {
  for (const std::string& folder : {staged_name(name), name}) {
    const auto manifest = find_manifest(store, folder, stop);
    if (!manifest || is_own(*manifest)) remove_files(store, folder, files_of(manifest), stop);
  }
}

bool is_forbidden(const net::HttpError& error) {
  return error.status == 403 && (error.code.empty() || error.code == "AccessDenied");
}

}  // namespace composer
