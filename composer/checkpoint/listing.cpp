// Lists the checkpoints of a save folder.
#include <algorithm>
#include <system_error>
#include <utility>

#include "composer/checkpoint/folder.h"
#include "composer/checkpoint/walk.h"
#include "composer/core/error.h"
#include "composer/formats/unsupported.h"
#include "composer/util/json.h"

namespace composer::saving {

namespace fs = std::filesystem;

namespace {

constexpr std::uint64_t kLongestManifest = util::kLongestJson;

// nullopt: no manifest exists.
std::optional<Found> open_if_there(const fs::path& path, FileSystem& files) {
  const fs::path file = path / Manifest::kFileName;
  try {
    const std::string text = files.read(file, kLongestManifest);
    return Found{files.canonical(path), Manifest::parse(text, file.string())};
  } catch (const FileError& error) {
    if (error.is_missing()) return std::nullopt;
    if (error.code() == std::errc::file_too_large)
      throw formats::UnsupportedError(file.string(), ": is too long for a manifest: more than ", kLongestManifest,
                                      " bytes");
    throw;
  }
}

bool has_checkpoints(const fs::path& folder) {
  try {
    return !paths_below(folder, Below::Kind::CHECKPOINT).empty();
  } catch (const FileError&) {
    return false;
  }
}

// Describes a path that is not a checkpoint.
std::string not_a_checkpoint(const fs::path& path) {
  std::error_code error;
  if (const fs::file_status status = fs::status(path, error); fs::exists(status)) {
    if (fs::is_directory(status) && has_checkpoints(path))
      return ": is not a checkpoint, but a folder of checkpoints; give the path of one of them";
    return join(": is not a checkpoint: it has no ", Manifest::kFileName);
  }
  if (fs::is_symlink(fs::symlink_status(path, error)))
    return ": is not a checkpoint, but a link to something that does not exist";
  return ": is not a checkpoint: there is no such file or folder";
}

bool is_in_place(const Found& found, const fs::path& folder) {
  const std::string& name = found.manifest.name;
  return found.path == (folder / name).lexically_normal() ||
         found.path == (folder / (name + kSpare)).lexically_normal();
}

std::string lacks_files(const fs::path& path) {
  return path.string() + ": files are missing, or their sizes differ from the manifest";
}

[[noreturn]] void fail_unreadable(const fs::path& folder, const std::vector<Listing::Unreadable>& unreadable) {
  std::string reasons;
  for (const Listing::Unreadable& one : unreadable) reasons += "\n  " + one.reason;
  throw CheckpointError("autoresume: ", folder.string(),
                        " has checkpoints that cannot be read, and no other to resume from; restore or remove them, ",
                        "or set another save_folder, or autoresume = false to start from scratch:", reasons);
}

}  // namespace

bool has_all_files(const Found& found, FileSystem& files) {
  return std::ranges::all_of(found.manifest.files, [&](const Manifest::File& file) {
    try {
      return files.size(found.path / file.name) == file.size;
    } catch (const FileError& error) {
      if (error.is_missing()) return false;
      throw;
    }
  });
}

Found open_checkpoint(const fs::path& path, FileSystem& files) {
  if (auto found = open_if_there(path, files)) return std::move(*found);
  throw CheckpointError(path.string(), not_a_checkpoint(path));
}

Listing list_folder(const fs::path& folder, FileSystem& files) {
  Listing all;
  for (const fs::path& path : paths_below(folder, Below::Kind::CHECKPOINT, files)) try {
      if (auto found = open_if_there(path, files)) all.checkpoints.push_back(std::move(*found));
    } catch (const NewerVersionError& error) {
      all.unreadable.push_back({path, error.what(), true});
    } catch (const CheckpointError& error) {
      all.unreadable.push_back({path, error.what(), false});
    }
  std::ranges::stable_sort(all.checkpoints, is_older, &Found::manifest);
  return all;
}

std::vector<Found> list_checkpoints(const fs::path& folder, FileSystem& files) {
  return list_folder(folder, files).checkpoints;
}

std::vector<Found> checkpoints_of_saver(const fs::path& folder, FileSystem& files) {
  std::vector<Found> all = list_checkpoints(folder, files);
  if (all.empty()) return all;
  std::erase_if(all, [place = files.canonical(folder)](const Found& found) { return !is_in_place(found, place); });
  return all;
}

bool is_of_run(const fs::path& path, const std::string& run_id, FileSystem& files) {
  try {
    const auto found = open_if_there(path, files);
    return found && found->manifest.run_id == run_id;
  } catch (const CheckpointError&) {
    return false;
  }
}

std::optional<Found> find_latest(const fs::path& folder, const std::string& latest,
                                 const std::function<bool(const Manifest&)>& fits, FileSystem& files) {
  const fs::path link = folder / latest;
  std::optional<fs::path> place;  // computed only when a checkpoint was found
  const auto is_wanted = [&](const Found& found) {
    if (!place) place = files.canonical(folder);
    return is_in_place(found, *place) && fits(found.manifest);
  };
  std::string damage;
  if (!latest.empty() && files.type(link) == FileSystem::Type::LINK) try {
      Found found = open_checkpoint(link, files);
      const bool whole = has_all_files(found, files);
      if (whole && is_wanted(found)) return found;
      if (!whole) damage = lacks_files(link);
    } catch (const NewerVersionError&) {
      throw;
    } catch (const CheckpointError& error) {
      damage = error.what();
    }
  Listing all = list_folder(folder, files);
  std::erase_if(all.checkpoints, [&](const Found& found) { return !is_wanted(found); });
  for (const Listing::Unreadable& one : all.unreadable)
    if (one.newer)
      throw CheckpointError("autoresume: ", one.reason,
                            ", or set another save_folder, or autoresume = false to start from scratch");
  std::erase_if(all.checkpoints, [&](const Found& found) {
    if (has_all_files(found, files)) return false;
    all.unreadable.push_back({found.path, lacks_files(found.path), false});
    return true;
  });
  if (all.checkpoints.empty()) {
    if (!all.unreadable.empty()) fail_unreadable(folder, all.unreadable);
    return std::nullopt;
  }
  Found newest = std::move(all.checkpoints.back());
  if (!damage.empty()) warn(join("checkpoint: ", damage, "; going back to ", newest.path.string()));
  return newest;
}

}  // namespace composer::saving
