#include "composer/remote/uploads.h"

#include "composer/core/error.h"
#include "composer/remote/files.h"

namespace composer::remote {

void hold(net::RemoteStore& store, Shared& shared, const std::stop_token& stop) {
  try {
    shared.owner.hold(store, stop);
  } catch (const CheckpointError& taken_over) {
    shared.set_lost(taken_over.what());
    throw;
  }
}

bool upload(net::RemoteStore& store, const Found& checkpoint, const std::function<std::shared_ptr<Links>()>& files,
            const std::string& name, bool is_new, Shared& shared, const std::stop_token& stop) {
  if (shared.is_retired(name)) return false;
  hold(store, shared, stop);
  const RemoteManifests before = find_manifests(store, name, stop);
  const std::string& id = checkpoint.manifest.id;
  if (before.plain && before.plain->id == id) {
    if (before.has_staged_files) remove_staged(store, name, before.staged, stop);
    if (before.plain->metrics.size() < checkpoint.manifest.metrics.size())  // from an evaluation after the upload
      if (const std::shared_ptr<Links> links = files())
        store.put(*links / Manifest::kFileName, manifest_of(name), stop);
    return true;
  }
  if (const auto& there = before.current(); there && there->id != id) {
    // Another machine may have continued from an earlier checkpoint. The later checkpoints of this machine are then no
    // longer useful.
    if (!is_new && shared.is_of_run(*there) && !saving::is_older(*there, checkpoint.manifest)) return true;
    if (!shared.overwrite && !shared.is_of_run(*there))
      throw CheckpointError(store.uri_of(name),
                            " already exists and was not written by this run; use another save_folder or set ",
                            "save_overwrite");
  }
  const std::shared_ptr<Links> links = files();
  if (!links) return false;
  put_checkpoint(
      store, {.manifest = checkpoint.manifest, .path = [&links](const std::string& file) { return *links / file; }},
      name, before, [&] { hold(store, shared, stop); }, stop);
  return true;
}

void delete_due(net::RemoteStore& store, Shared& shared, const std::stop_token& stop) {
  while (const auto old = shared.next_due()) try {
      hold(store, shared, stop);
      try {
        remove_checkpoint(
            store, *old, [&](const Manifest& manifest) { return shared.is_of_run(manifest); }, stop);
      } catch (const ConfigError& error) {  // the name comes from a checkpoint, which may be forged
        warn(join("save_folder: ", error.what(), "; nothing is deleted there"));
      } catch (const CheckpointError& damaged) {
        warn(join("save_folder: ", *old, " is not deleted: ", damaged.what()));
      }
      shared.set_deleted(*old);
    } catch (const net::HttpError& error) {
      if (is_forbidden(error)) shared.forbid_deletions();
      if (!shared.told_undeleted()) {
        const char* what = is_forbidden(error) ? "; to delete old checkpoints, the credentials need the permission "
                                                 "s3:DeleteObject. This process deletes nothing more there"
                                               : "; it is tried again after the next upload";
        warn(join("save_folder: ", store.uri_of(*old), " could not be deleted: ", error.what(), what));
      }
      return;
    } catch (const net::Cancelled&) {
      return;
    }
}

}  // namespace composer::remote
