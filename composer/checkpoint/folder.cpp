#include "composer/checkpoint/folder.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "composer/core/error.h"
#include "composer/util/checksum.h"

namespace composer::saving {

namespace fs = std::filesystem;

namespace {

constexpr const char* kTemporary = ".tmp-";
constexpr std::uintmax_t kLongestManifest = 64 << 20;

bool is_temporary(const fs::path& path) { return path.filename().string().starts_with(kTemporary); }

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) throw CheckpointError(path.string(), ": could not be read");
  return std::move(text).str();
}

bool older(const Found& a, const Found& b) {
  return std::pair(a.manifest.time.batch, a.manifest.time.epoch) <
         std::pair(b.manifest.time.batch, b.manifest.time.epoch);
}

// Sizes only: what is in the files is checked when it is read.
bool has_all_files(const Found& found) {
  return std::ranges::all_of(found.manifest.files, [&](const Manifest::File& file) {
    std::error_code error;
    return fs::file_size(found.path / file.name, error) == file.size && !error;
  });
}

}  // namespace

CheckpointFolder::CheckpointFolder(fs::path path, std::string run_id, FileSystem& files)
    : path_(std::move(path)), run_id_(std::move(run_id)), files_(files) {}

fs::path CheckpointFolder::temporary() { return path_ / join(kTemporary, run_id_, '-', ::getpid(), '-', ++count_); }

// Each level is made known before there is anything in it.
void CheckpointFolder::make_folders(const fs::path& path) {
  if (path.empty() || fs::is_directory(path)) return;
  make_folders(path.parent_path());
  files_.make_folder(path);
  files_.sync_folder(path.has_parent_path() ? path.parent_path() : ".");
}

void CheckpointFolder::write_file(const fs::path& path, const NewFile& file, Manifest& manifest) {
  util::Checksum sum;
  std::uint64_t size = 0;
  const int opened = files_.create(path);
  try {
    file.write([&](const void* data, std::size_t count) {
      files_.write(opened, path, data, count);
      sum.update(data, count);
      size += count;
    });
    files_.sync(opened, path);
  } catch (...) {
    ::close(opened);
    throw;
  }
  files_.close(opened, path);
  manifest.files.push_back({file.name, size, sum.text()});
}

void CheckpointFolder::write(Manifest manifest, const std::vector<NewFile>& files, const std::string& latest,
                             bool overwrite) {
  const fs::path target = path_ / manifest.name;
  if (!overwrite) check_free(target);
  make_folders(target.parent_path());
  const fs::path made = temporary();
  try {
    files_.make_folder(made);
    for (const NewFile& file : files) write_file(made / file.name, file, manifest);
    const std::string text = manifest.to_json();
    Manifest ignored;
    write_file(made / Manifest::kFileName,
               {Manifest::kFileName, [&](const Sink& sink) { sink(text.data(), text.size()); }}, ignored);
    files_.sync_folder(made);
    put_in_place(made, target);
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(made, ignored);
    throw;
  }
  if (!latest.empty()) move_link(path_ / latest, target);
}

void CheckpointFolder::check_free(const fs::path& target) const {
  if (!fs::exists(fs::symlink_status(target)) || is_of_run(target, run_id_)) return;
  throw CheckpointError(target.string(), ": is in the way, and was not written by this run; set another folder, or ",
                        "save_overwrite");
}

void CheckpointFolder::put_in_place(const fs::path& made, const fs::path& target) {
  if (!fs::exists(target)) {
    files_.rename(made, target);
  } else {
    files_.exchange(made, target);
    files_.sync_folder(target.parent_path());
    files_.remove(made);  // what was there before
  }
  files_.sync_folder(target.parent_path());
  if (target.parent_path() != path_) files_.sync_folder(path_);
}

void CheckpointFolder::move_link(const std::string& latest, const fs::path& target) {
  const fs::path link = latest, made = temporary();
  make_folders(link.parent_path());
  files_.make_link(fs::relative(target, link.parent_path()), made);
  try {
    files_.rename(made, link);
  } catch (...) {
    std::error_code ignored;
    fs::remove(made, ignored);
    throw;
  }
  files_.sync_folder(link.parent_path());
}

// Under a temporary name first, so that half of one is never seen.
void CheckpointFolder::remove(const std::string& name) {
  if (!fs::exists(path_ / name)) return;
  const fs::path away = temporary();
  files_.rename(path_ / name, away);
  files_.remove(away);
}

void CheckpointFolder::remove_leftovers() {
  std::error_code error;
  const std::string mine = kTemporary + run_id_ + '-';
  std::vector<fs::path> leftovers;
  for (const fs::directory_entry& entry : fs::directory_iterator(path_, error))
    if (entry.path().filename().string().starts_with(mine)) leftovers.push_back(entry.path());
  for (const fs::path& path : leftovers) files_.remove(path);
}

Found open_checkpoint(const fs::path& path) {
  const fs::path file = path / Manifest::kFileName;
  std::error_code error;
  const std::uintmax_t size = fs::file_size(file, error);
  if (error) throw CheckpointError(path.string(), ": is no checkpoint: it has no ", Manifest::kFileName);
  if (size > kLongestManifest) throw CheckpointError(file.string(), ": is too long for a manifest: ", size, " bytes");
  return {fs::canonical(path), Manifest::parse(text_of(file), file.string())};
}

// Names may have folders in them.
std::vector<Found> list_checkpoints(const fs::path& folder) {
  std::vector<Found> all;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (!it->is_directory() || it->is_symlink()) continue;
    if (is_temporary(it->path())) {
      it.disable_recursion_pending();
    } else if (fs::exists(it->path() / Manifest::kFileName)) {
      it.disable_recursion_pending();
      try {
        all.push_back(open_checkpoint(it->path()));
      } catch (const CheckpointError&) {  // damaged: none that is listed
      }
    }
  }
  std::ranges::stable_sort(all, older);
  return all;
}

bool is_of_run(const fs::path& path, const std::string& run_id) {
  try {
    return open_checkpoint(path).manifest.run_id == run_id;
  } catch (const CheckpointError&) {
    return false;
  }
}

std::optional<Found> find_latest(const fs::path& folder, const std::string& latest) {
  const fs::path link = folder / latest;
  std::error_code error;
  const bool has_link = fs::is_symlink(link, error);
  std::string reason = "is gone";
  if (has_link) {
    try {
      Found found = open_checkpoint(link);
      if (has_all_files(found)) return found;
      reason = "lacks files, or has some of another size";
    } catch (const CheckpointError& damaged) {
      reason = damaged.what();
    } catch (const fs::filesystem_error&) {  // the link leads nowhere
    }
  }
  std::vector<Found> all = list_checkpoints(folder);
  std::erase_if(all, [](const Found& found) { return !has_all_files(found); });
  if (all.empty()) return std::nullopt;
  if (has_link) warn(join("checkpoint: ", link.string(), " ", reason, "; going back to ", all.back().path.string()));
  return all.back();
}

}  // namespace composer::saving
