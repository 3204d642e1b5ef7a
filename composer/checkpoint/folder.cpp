#include "composer/checkpoint/folder.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "composer/checkpoint/folder_lock.h"
#include "composer/checkpoint/walk.h"
#include "composer/core/error.h"

namespace composer::saving {

namespace fs = std::filesystem;

namespace {

constexpr std::uintmax_t kLongestManifest = 64 << 20;
constexpr const char* kSpare = ".new";

// As temporary() makes them, by whichever process.
bool is_leftover_name(std::string name) {
  if (!name.starts_with(kTemporary)) return false;
  for (int i = 0; i < 2; ++i) {  // the number of the folder, and of the process
    const std::size_t dash = name.rfind('-');
    if (dash == std::string::npos || dash + 1 == name.size() ||
        name.find_first_not_of("0123456789", dash + 1) != std::string::npos)
      return false;
    name.resize(dash);
  }
  return name.size() > std::string_view(kTemporary).size();
}

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

// The name of a checkpoint, in the folder that it is in and, where that is one of its own, up to the root.
void sync_name(FileSystem& files, const fs::path& root, const fs::path& target) {
  files.sync_folder(target.parent_path());
  if (target.parent_path() != root) files.sync_folder(root);
}

// Sizes only: what is in the files is checked when it is read.
bool has_all_files(const Found& found) {
  return std::ranges::all_of(found.manifest.files, [&](const Manifest::File& file) {
    std::error_code error;
    return fs::file_size(found.path / file.name, error) == file.size && !error;
  });
}

// A file that is being written. The system is asked early to put it on the disk, so that there is little to wait for.
class OpenFile {
 public:
  OpenFile(FileSystem& files, fs::path path)
      : files_(files), path_(std::move(path)), descriptor_(files.create(path_)) {}
  ~OpenFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  void write(std::uint64_t offset, const void* data, std::size_t size) {
    files_.write(descriptor_, path_, offset, data, size);
    size_ = std::max(size_, offset + size);
    const std::uint64_t whole = size_ / kAhead * kAhead;
    if (whole <= started_) return;
    files_.start_sync(descriptor_, path_, started_, whole - started_);
    started_ = whole;
  }
  std::uint64_t size() const { return size_; }
  void finish() {
    files_.sync(descriptor_, path_);
    files_.close(std::exchange(descriptor_, -1), path_);
  }

 private:
  static constexpr std::uint64_t kAhead = 8 << 20;

  FileSystem& files_;
  fs::path path_;
  int descriptor_;
  std::uint64_t size_ = 0, started_ = 0;
};

}  // namespace

CheckpointFolder::CheckpointFolder(fs::path path, std::string run_id, FileSystem& files)
    : path_(std::move(path)), run_id_(std::move(run_id)), files_(files) {}

// Between its making and its locking, another process may take it for a leftover.
std::unique_ptr<FolderLock> CheckpointFolder::make_temporary(fs::path& made) {
  constexpr int kTimes = 10;
  for (int i = 0; i < kTimes; ++i) {
    made = temporary();
    files_.make_folder(made);
    auto lock = std::make_unique<FolderLock>(made);
    if (lock->state() == FolderLock::State::HELD || lock->state() == FolderLock::State::UNKNOWN) return lock;
  }
  throw CheckpointError(path_.string(), ": something removes temporary folders as soon as they are made");
}

// Another one of this process may write into the same folder, and one that is dead may have had the same number.
fs::path CheckpointFolder::temporary() const {
  static std::atomic<std::uint64_t> count = 0;
  for (;;) {
    fs::path path = path_ / join(kTemporary, run_id_, '-', ::getpid(), '-', ++count);
    if (!fs::exists(fs::symlink_status(path))) return path;
  }
}

// Each level is made known before there is anything in it.
void CheckpointFolder::make_folders(const fs::path& path) {
  if (path.empty() || fs::is_directory(path)) return;
  make_folders(path.parent_path());
  files_.make_folder(path);
  files_.sync_folder(path.has_parent_path() ? path.parent_path() : ".");
}

// All are written before the first is waited for.
void CheckpointFolder::write_files(const fs::path& folder, const std::vector<NewFile>& files, Manifest& manifest) {
  std::vector<std::unique_ptr<OpenFile>> open;
  const auto write = [&](const NewFile& file) {
    OpenFile& opened = *open.emplace_back(std::make_unique<OpenFile>(files_, folder / file.name));
    const std::string checksum =
        file.write([&](std::uint64_t offset, const void* data, std::size_t size) { opened.write(offset, data, size); });
    return Manifest::File{file.name, opened.size(), checksum};
  };
  for (const NewFile& file : files) manifest.files.push_back(write(file));
  write({Manifest::kFileName, [text = manifest.to_json()](const PlacedSink& sink) {
           sink(0, text.data(), text.size());
           return std::string();
         }});
  for (const auto& file : open) file->finish();
}

void CheckpointFolder::write(Manifest manifest, const std::vector<NewFile>& files, const std::string& latest,
                             bool overwrite) {
  const fs::path target = path_ / manifest.name;
  if (!overwrite) check_free(target);
  make_folders(target.parent_path());
  fs::path made;
  const std::unique_ptr<FolderLock> lock = make_temporary(made);
  try {
    write_files(made, files, manifest);
    files_.sync_folder(made);
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(made, ignored);
    throw;
  }
  put_in_place(made, target);
  if (!latest.empty()) move_link(path_ / latest, target);
}

void CheckpointFolder::check_free(const fs::path& target) const {
  if (!fs::exists(fs::symlink_status(target)) || is_of_run(target, run_id_)) return;
  throw CheckpointError(target.string(), ": is in the way, and was not written by this run; set another folder, or ",
                        "save_overwrite");
}

void CheckpointFolder::put_in_place(const fs::path& made, const fs::path& target) {
  const bool replaces = fs::exists(target);
  const FolderLock old(target);
  try {
    if (!replaces)
      files_.rename(made, target);
    else if (!files_.exchange(made, target))
      replace_slowly(made, target);
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(made, ignored);
    throw;
  }
  sync_name(files_, path_, target);
  if (replaces) files_.remove(made);  // what was there before
}

// Without exchanging: the new one is there under a further name before the old one goes. Killed in between, it stays
// there, until one of that name is replaced or deleted.
void CheckpointFolder::replace_slowly(const fs::path& made, const fs::path& target) {
  const std::string name = target.lexically_relative(path_).string();
  if (const auto left = spare_of(name)) remove({*left});
  const fs::path spare = path_ / (name + kSpare);
  files_.rename(made, spare);
  sync_name(files_, path_, target);
  files_.rename(target, made);
  sync_name(files_, path_, target);
  files_.rename(spare, target);
}

// What replace_slowly() of a killed process has left.
std::optional<std::string> CheckpointFolder::spare_of(const std::string& name) const {
  std::string spare = name + kSpare;
  if (!fs::exists(path_ / spare)) return std::nullopt;
  try {
    return open_checkpoint(path_ / spare).manifest.name == name ? std::optional(std::move(spare)) : std::nullopt;
  } catch (const CheckpointError&) {
    return std::nullopt;
  }
}

void CheckpointFolder::move_link(const std::string& latest, const fs::path& target) {
  const fs::path link = latest, made = temporary();
  make_folders(link.parent_path());
  if (!files_.make_link(fs::relative(target, link.parent_path()), made)) return;  // the newest is found without, too
  try {
    files_.rename(made, link);
  } catch (...) {
    std::error_code ignored;
    fs::remove(made, ignored);
    throw;
  }
  files_.sync_folder(link.parent_path());
}

// Under a temporary name first, and that is on the disk before anything of it goes: half of one is never seen.
std::vector<std::string> CheckpointFolder::remove(const std::vector<std::string>& names) {
  std::vector<std::string> stay;
  std::vector<fs::path> away;
  std::vector<std::unique_ptr<FolderLock>> locks;
  std::set<fs::path> folders;
  std::vector<std::string> all = names;
  for (const std::string& name : names)
    if (auto spare = spare_of(name)) all.push_back(std::move(*spare));
  for (const std::string& name : all) try {
      const fs::path path = path_ / name;
      if (!fs::exists(path)) continue;
      locks.push_back(std::make_unique<FolderLock>(path));
      const fs::path to = temporary();
      files_.rename(path, to);
      away.push_back(to);
      folders.insert({path.parent_path(), path_});
    } catch (const FileError& error) {
      warn(join("checkpoint: ", name, " should have been deleted, and stays: ", error.what()));
      stay.push_back(name);
    }
  try {
    for (const fs::path& folder : folders) files_.sync_folder(folder);
    for (const fs::path& path : away) files_.remove(path);
  } catch (const FileError& error) {  // whoever comes next takes them for leftovers
    warn(join("checkpoint: what is no longer needed stays: ", error.what()));
  }
  return stay;
}

void CheckpointFolder::remove_leftovers() {
  std::error_code error;
  const std::string mine = kTemporary + run_id_ + '-';
  std::vector<fs::path> leftovers;
  for (const fs::directory_entry& entry : fs::directory_iterator(path_, error))
    if (is_leftover_name(entry.path().filename().string())) leftovers.push_back(entry.path());
  for (const fs::path& path : leftovers) {
    const FolderLock lock(path);
    const bool own = path.filename().string().starts_with(mine);
    const bool unlocked = lock.state() == FolderLock::State::HELD;
    const bool unlockable = lock.state() == FolderLock::State::UNKNOWN || fs::is_symlink(path, error);
    if (unlocked || (own && unlockable)) files_.remove(path);
  }
}

Found open_checkpoint(const fs::path& path) {
  const fs::path file = path / Manifest::kFileName;
  std::error_code error;
  const std::uintmax_t size = fs::file_size(file, error);
  if (error) throw CheckpointError(path.string(), ": is no checkpoint: it has no ", Manifest::kFileName);
  if (size > kLongestManifest) throw CheckpointError(file.string(), ": is too long for a manifest: ", size, " bytes");
  return {fs::canonical(path), Manifest::parse(text_of(file), file.string())};
}

std::vector<Found> list_checkpoints(const fs::path& folder) {
  std::vector<Found> all;
  std::error_code error;
  for (const fs::path& path : paths_below(folder, Below::CHECKPOINTS, error)) try {
      all.push_back(open_checkpoint(path));
    } catch (const CheckpointError&) {
      continue;  // damaged: none that is listed
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
  std::string reason;
  if (has_link) {
    try {
      Found found = open_checkpoint(link);
      if (has_all_files(found)) return found;
      reason = link.string() + ": lacks files, or has some of another size";
    } catch (const CheckpointError& damaged) {
      reason = damaged.what();
    } catch (const fs::filesystem_error&) {
      reason = link.string() + ": leads nowhere";
    }
  }
  std::vector<Found> all = list_checkpoints(folder);
  std::erase_if(all, [](const Found& found) { return !has_all_files(found); });
  if (all.empty()) return std::nullopt;
  if (has_link) warn(join("checkpoint: ", reason, "; going back to ", all.back().path.string()));
  return all.back();
}

}  // namespace composer::saving
