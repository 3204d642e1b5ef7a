#include "composer/checkpoint/folder.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <iterator>
#include <memory>
#include <set>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "composer/checkpoint/name_format.h"
#include "composer/checkpoint/parts.h"
#include "composer/checkpoint/walk.h"
#include "composer/core/error.h"
#include "composer/formats/json_reader.h"
#include "composer/util/file_lock.h"

namespace composer::saving {

namespace fs = std::filesystem;

namespace {

using Type = FileSystem::Type;

// Whether temporary_name() of any process could have made the name.
bool is_leftover_name(std::string name) {
  if (!name.starts_with(kTemporary)) return false;
  for (int i = 0; i < 2; ++i) {  // the number of the folder, then that of the process
    const std::size_t dash = name.rfind('-');
    if (dash == std::string::npos || dash + 1 == name.size() ||
        name.find_first_not_of("0123456789", dash + 1) != std::string::npos)
      return false;
    name.resize(dash);
  }
  return name.size() > std::string_view(kTemporary).size();
}

// Syncs the folder that contains the checkpoint; if the checkpoint is in a subfolder of the root, also all folders up
// to the root.
void sync_name(FileSystem& files, const fs::path& root, const fs::path& target) {
  files.sync_folder(target.parent_path());
  if (target.parent_path() != root) files.sync_folder(root);
}

// Returns false for a folder that cannot be renamed, such as one from the image of a container: overlay file systems do
// not rename folders of a lower layer.
template <class Rename>
bool can(const Rename& rename) {
  try {
    rename();
    return true;
  } catch (const FileError& error) {
    if (error.code() != std::errc::cross_device_link) throw;
    return false;
  }
}

// For file systems without links. The newest checkpoint is found without a link, but would not be found beside a link
// to an older one.
void remove_link(FileSystem& files, const fs::path& link) {
  if (files.type(link) != Type::LINK) return;
  files.remove(link);
  files.sync_folder(link.parent_path());
  warn(join("checkpoint: ", link.string(), " is removed, because no links can be made there any more, and it would ",
            "lead to an older checkpoint; a run goes on from the newest"));
}

// A file that is being written. Its data are sent to the disk early, so that sync() has little left to write.
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

CheckpointFolder::CheckpointFolder(fs::path path, std::string run_id, FileSystem& files, OptionNames names)
    : path_(std::move(path)), run_id_(std::move(run_id)), files_(files), names_(names) {
  if (!path_.has_filename() && path_.has_relative_path()) path_ = path_.parent_path();  // "checkpoints/"
}

void CheckpointFolder::fail_taken(const fs::path& target) const {
  throw CheckpointError(target.string(), ": already exists and was not written by this run; set another ",
                        names_.prefix, "folder, or ", names_.prefix, "overwrite");
}

// Another process may remove the folder as a leftover between its creation and its locking.
CheckpointFolder::Temporary CheckpointFolder::make_temporary() {
  constexpr int kTimes = 10;
  for (int i = 0; i < kTimes; ++i) {
    TemporaryPath made(files_, temporary_name());
    files_.make_folder(made.path());
    auto lock = std::make_unique<util::FileLock>(made.path(), util::FileLock::Kind::FOLDER);
    if (lock->state() == util::FileLock::State::HELD || lock->state() == util::FileLock::State::UNKNOWN)
      return {std::move(lock), std::move(made)};
  }
  throw CheckpointError(path_.string(), ": temporary folders are removed as soon as they are created; is another ",
                        "program cleaning up in this folder?");
}

// Unique among the writers of this process, and different from what a dead process with the same number has left.
fs::path CheckpointFolder::temporary_name() const {
  static std::atomic<std::uint64_t> count = 0;
  for (;;) {
    fs::path path = path_ / join(kTemporary, run_id_, '-', ::getpid(), '-', ++count);
    if (files_.type(path) == Type::NONE) return path;
  }
}

// Syncs each level before anything is created in it.
void CheckpointFolder::make_folders(const fs::path& path) {
  const auto is_there = [&] {
    const Type type = files_.type(path);
    return type == Type::FOLDER || (type == Type::LINK && files_.type(path / "") == Type::FOLDER);
  };
  if (path.empty() || is_there()) return;
  make_folders(path.parent_path());
  try {
    files_.make_folder(path);
  } catch (const FileError& error) {
    if (error.code() != std::errc::file_exists || !is_there()) throw;  // another process made it
  }
  files_.sync_folder(path.has_parent_path() ? path.parent_path() : ".");
}

// Writes all files before it waits for the first.
void CheckpointFolder::write_files(const fs::path& folder, const std::vector<NewFile>& files, Manifest& manifest,
                                   const Parts* parts) {
  std::vector<std::unique_ptr<OpenFile>> open;
  const auto write = [&](const NewFile& file) {
    if (parts) files_.remove(folder / file.name);  // from a failed attempt
    OpenFile& opened = *open.emplace_back(std::make_unique<OpenFile>(files_, folder / file.name));
    const std::string checksum =
        file.write([&](std::uint64_t offset, const void* data, std::size_t size) { opened.write(offset, data, size); });
    return Manifest::File{file.name, opened.size(), checksum};
  };
  for (const NewFile& file : files) manifest.files.push_back(write(file));
  if (parts)
    std::ranges::move(await_parts(folder, parts->names_, files_, parts->patience_), std::back_inserter(manifest.files));
  write({Manifest::kFileName, [text = manifest.to_json()](const PlacedSink& sink) {
           sink(0, text.data(), text.size());
           return std::string();
         }});
  for (const auto& file : open) file->finish();
}

CheckpointFolder::Parts::Parts(Temporary temporary, std::vector<std::string> names, std::string id, Patience patience)
    : temporary_(std::move(temporary)), names_(std::move(names)), id_(std::move(id)), patience_(std::move(patience)) {}

CheckpointFolder::Parts::~Parts() = default;

fs::path CheckpointFolder::Parts::path() const { return fs::absolute(temporary_.path.path()); }

std::unique_ptr<CheckpointFolder::Parts> CheckpointFolder::open_parts(std::vector<std::string> names, std::string id,
                                                                      Patience patience) {
  make_folders(path_);
  return std::unique_ptr<Parts>(new Parts(make_temporary(), std::move(names), std::move(id), std::move(patience)));
}

void CheckpointFolder::write(Manifest manifest, const std::vector<NewFile>& files, const std::string& latest,
                             bool overwrite, Parts* parts) {
  check_name(manifest.name, latest, names_.name("filename").c_str());
  finish_replacing(manifest.name);
  check_free(manifest.name, overwrite);
  check_link(latest);
  const fs::path target = path_ / manifest.name;
  if (parts && parts->complete_) {  // only put_in_place() has failed before: the parts cannot be written again
    if (!holds(manifest))
      throw FileError("cannot be tried again", target, std::make_error_code(std::errc::operation_not_permitted));
    sync_name(files_, path_, target);
  } else {
    make_folders(target.parent_path());
    std::optional<Temporary> own;
    if (!parts) own.emplace(make_temporary());
    TemporaryPath& made = parts ? parts->temporary_.path : own->path;
    write_files(made.path(), files, manifest, parts);
    files_.sync_folder(made.path());
    if (parts) parts->complete_ = true;
    put_in_place(made, manifest.name, overwrite);
  }
  if (!latest.empty()) move_link(path_ / latest, target);
}

void CheckpointFolder::point(const std::string& link, const std::string& name) {
  check_link(link);
  move_link(path_ / link, path_ / name);
}

void CheckpointFolder::unlink(const std::string& link, const std::string& run_name) {
  if (files_.type(path_ / link) != Type::LINK) return;
  try {
    const Manifest there = open_checkpoint(path_ / link, files_).manifest;
    if (there.run_id != run_id_ && there.run_name != run_name) return;
  } catch (const CheckpointError&) {  // NOLINT(bugprone-empty-catch): it leads nowhere
  }
  files_.remove(path_ / link);
  files_.sync_folder(path_);
}

// The manifest is replaced by a new file. A mirror may hold the old one by a hard link, and keeps its contents.
bool CheckpointFolder::add_metrics(const std::string& name, const std::string& id,
                                   const std::map<std::string, double>& metrics) {
  const fs::path target = path_ / name;
  if (files_.type(target) != Type::FOLDER || !is_of_run(target, run_id_, files_)) return false;
  Manifest manifest = open_checkpoint(target, files_).manifest;
  if (manifest.id != id) return false;
  const std::size_t before = manifest.metrics.size();
  manifest.metrics.insert(metrics.begin(), metrics.end());
  if (manifest.metrics.size() == before) return false;
  const Temporary made = make_temporary();
  const fs::path file = made.path.path() / Manifest::kFileName;
  const std::string text = manifest.to_json();
  OpenFile open(files_, file);
  open.write(0, text.data(), text.size());
  open.finish();
  files_.rename(file, target / Manifest::kFileName);
  files_.sync_folder(target);
  return true;
}

bool CheckpointFolder::holds(const Manifest& manifest) const {
  try {
    return open_checkpoint(path_ / manifest.name, files_).manifest.id == manifest.id;
  } catch (const std::exception&) {
    return false;
  }
}

void CheckpointFolder::probe() {
  make_folders(path_);
  const Temporary made = make_temporary();
  OpenFile file(files_, made.path.path() / "probe");
  file.write(0, "probe", 5);
  file.finish();
  // A checkpoint is a folder that gets its name once it is complete. Buckets mounted as folders cannot rename folders.
  const fs::path unnamed = made.path.path() / "unnamed";
  files_.make_folder(unnamed);
  if (!files_.rename_if_free(unnamed, made.path.path() / "named"))
    throw FileError("could not rename to", made.path.path() / "named", std::make_error_code(std::errc::file_exists));
  files_.sync_folder(made.path.path());
}

void CheckpointFolder::check_free(const std::string& name, bool overwrite) const {
  const fs::path target = path_ / name;
  for (fs::path outer = fs::path(name).parent_path(); !outer.empty(); outer = outer.parent_path())
    if (files_.type(path_ / outer / Manifest::kFileName) != Type::NONE)
      throw CheckpointError(target.string(), ": lies inside the checkpoint ", (path_ / outer).string(), "; change ",
                            names_.prefix, "filename");
  if (!overwrite && files_.type(target) != Type::NONE && !is_of_run(target, run_id_, files_)) fail_taken(target);
}

// Only a link is replaced; a file with the name belongs to somebody else.
void CheckpointFolder::check_link(const std::string& latest) const {
  if (latest.empty()) return;
  const Type type = files_.type(path_ / latest);
  if (type == Type::NONE || type == Type::LINK) return;
  throw CheckpointError((path_ / latest).string(), ": is not a link, so it cannot be made to lead to a ",
                        "checkpoint; move it away, or set another ", names_.prefix, "latest_filename");
}

// Until sync_name() has returned, a power failure may bring the previous checkpoint back, so it must not be removed
// before.
void CheckpointFolder::put_in_place(TemporaryPath& made, const std::string& name, bool overwrite) {
  const fs::path target = path_ / name;
  if (files_.rename_if_free(made.path(), target)) {
    made.release();
    return sync_name(files_, path_, target);
  }
  check_free(name, overwrite);  // again, because writing takes long
  const util::FileLock old(target, util::FileLock::Kind::FOLDER);
  replace(made, name, overwrite);
  const fs::path previous = made.release();
  sync_name(files_, path_, target);
  files_.remove(previous);
}

// Afterwards the previous checkpoint is under the temporary name.
void CheckpointFolder::replace(TemporaryPath& made, const std::string& name, bool overwrite) {
  const fs::path target = path_ / name;
  if (!files_.exchange(made.path(), target)) return replace_slowly(made, name, overwrite);
  if (!overwrite) require_own(made, name, [&] { return files_.exchange(made.path(), target); });
}

// Replaces without exchanging: the new checkpoint gets a further name before the old one is removed. After a kill in
// between it stays there, until a checkpoint with the name is replaced or deleted. check_free() has checked an old one
// that cannot be renamed.
void CheckpointFolder::replace_slowly(TemporaryPath& made, const std::string& name, bool overwrite) {
  const fs::path target = path_ / name, spare = path_ / (name + kSpare);
  if (const auto left = spare_of(name)) remove({*left});
  if (!files_.rename_if_free(made.path(), spare)) fail_taken(spare);
  sync_name(files_, path_, target);
  const bool moved = can([&] { files_.rename(target, made.path()); });
  if (!moved) remove_in_place(target);
  if (!overwrite && moved)
    require_own(made, name, [&] {
      if (!files_.rename_if_free(made.path(), target)) return false;
      files_.rename(spare, made.path());
      return true;
    });
  sync_name(files_, path_, target);
  if (!files_.rename_if_free(spare, target)) fail_taken(target);  // the new one keeps the further name
}

// Between a check of a name and its renaming, another run may put a checkpoint of its own there. So the checkpoint that
// was taken away is checked again. If it is not of this run, it is put back; it is never deleted.
void CheckpointFolder::require_own(TemporaryPath& taken, const std::string& name,
                                   const std::function<bool()>& put_back) {
  std::exception_ptr unreadable;
  try {
    if (is_of_run(taken.path(), run_id_, files_)) return;
  } catch (const FileError&) {
    unreadable = std::current_exception();
  }
  bool is_back = false;
  try {
    is_back = put_back();
  } catch (const FileError& error) {
    warn(join("checkpoint: could not put back ", (path_ / name).string(), ": ", error.what()));
  }
  if (!is_back) taken.release();
  if (unreadable) std::rethrow_exception(unreadable);
  fail_taken(path_ / name);
}

// Removes the manifest first, so that a half-removed folder does not count as a checkpoint.
void CheckpointFolder::remove_in_place(const fs::path& path) {
  files_.remove(path / Manifest::kFileName);
  files_.sync_folder(path);
  files_.remove(path);
}

// Completes replace_slowly() of a process that was killed in remove_in_place(): it has left the remains of the old
// checkpoint, and the new one under its further name.
void CheckpointFolder::finish_replacing(const std::string& name) {
  const fs::path target = path_ / name;
  if (files_.type(target) != Type::FOLDER || files_.type(target / Manifest::kFileName) != Type::NONE) return;
  const auto spare = spare_of(name);
  if (!spare) return;
  const Manifest manifest = open_checkpoint(path_ / *spare, files_).manifest;
  const std::vector<FileSystem::Item> remains = files_.list(target);
  if (!std::ranges::all_of(remains, [&](const auto& item) { return manifest.find(item.name) != nullptr; })) return;
  files_.remove(target);
  if (files_.rename_if_free(path_ / *spare, target)) sync_name(files_, path_, target);
}

// The checkpoint under a further name that replace_slowly() of a killed process has left.
std::optional<std::string> CheckpointFolder::spare_of(const std::string& name) const {
  std::string spare = name + kSpare;
  if (files_.type(path_ / spare) == Type::NONE) return std::nullopt;
  try {
    const Manifest manifest = open_checkpoint(path_ / spare, files_).manifest;
    return manifest.name == name && manifest.run_id == run_id_ ? std::optional(std::move(spare)) : std::nullopt;
  } catch (const CheckpointError&) {
    return std::nullopt;
  }
}

void CheckpointFolder::move_link(const fs::path& link, const fs::path& target) {
  make_folders(link.parent_path());
  TemporaryPath made(files_, temporary_name());
  if (!files_.make_link(target.lexically_relative(link.parent_path()), made.path())) return remove_link(files_, link);
  files_.rename(made.path(), link);
  made.release();
  files_.sync_folder(link.parent_path());
}

// Whether the name is that of a checkpoint of this run: another one may have replaced it.
bool CheckpointFolder::is_own(const std::string& name) const {
  try {
    return files_.type(path_ / name) == Type::FOLDER &&
           open_checkpoint(path_ / name, files_).manifest.run_id == run_id_;
  } catch (const CheckpointError& error) {
    warn(join("checkpoint: ", formats::shown(name), " is not deleted: ", error.what()));
    return false;
  }
}

// Renames the checkpoint to a temporary name; a folder that cannot be renamed is removed where it is. Throws
// CheckpointError if it is no longer one of this run.
std::optional<CheckpointFolder::Temporary> CheckpointFolder::take_away(const std::string& name) {
  const fs::path path = path_ / name;
  Temporary away{std::make_unique<util::FileLock>(path, util::FileLock::Kind::FOLDER),
                 TemporaryPath(files_, temporary_name())};
  if (!can([&] { files_.rename(path, away.path.path()); })) {
    remove_in_place(path);
    return std::nullopt;
  }
  require_own(away.path, name, [&] { return files_.rename_if_free(away.path.path(), path); });
  return away;
}  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks): it loses sight of the lock that the result owns

// Renames to temporary names and syncs before it deletes anything in them, so that a half-deleted checkpoint is never
// seen.
std::vector<std::string> CheckpointFolder::remove(const std::vector<std::string>& names) {
  std::vector<std::string> stay;
  std::vector<Temporary> away;
  std::set<fs::path> folders;
  const auto rename_away = [&](const std::string& name) {
    if (auto taken = take_away(name)) away.push_back(std::move(*taken));
    folders.insert({(path_ / name).parent_path(), path_});
  };
  for (const std::string& name : names) try {
      check_name(name, "");  // it comes from a checkpoint, which may be forged
      if (is_own(name)) rename_away(name);
      if (const auto spare = spare_of(name)) rename_away(*spare);
    } catch (const fs::filesystem_error& error) {
      warn(join("checkpoint: could not delete ", formats::shown(name), ": ", error.what()));
      stay.push_back(name);
    } catch (const Error& error) {
      warn(join("checkpoint: ", formats::shown(name), " is not deleted: ", error.what()));
    }
  try {
    for (const fs::path& folder : folders) files_.sync_folder(folder);
    for (const Temporary& one : away) files_.remove(one.path.path());
  } catch (const fs::filesystem_error& error) {  // the next process that saves here removes them as leftovers
    warn(join("checkpoint: could not remove a deleted checkpoint: ", error.what()));
  }
  for (Temporary& one : away) one.path.release();
  return stay;
}

void CheckpointFolder::free_link(const std::string& latest) {
  if (latest.empty()) return;
  const fs::path link = path_ / latest;
  if (files_.type(link) == Type::FOLDER && is_of_run(link, run_id_, files_)) rename_copy(latest);
  check_link(latest);
}

void CheckpointFolder::rename_copy(const std::string& latest) {
  const Manifest copy = open_checkpoint(path_ / latest, files_).manifest;
  check_name(copy.name, latest);
  const fs::path target = path_ / copy.name;
  if (files_.type(target) == Type::NONE) {
    make_folders(target.parent_path());
    bool renamed = false;
    if (can([&] { renamed = files_.rename_if_free(path_ / latest, target); }) && renamed)
      sync_name(files_, path_, target);
    return;
  }
  if (!is_of_run(target, run_id_, files_)) return;
  const Found original = open_checkpoint(target, files_);
  if (original.manifest.id != copy.id || !has_all_files(original, files_)) return;
  const auto away = take_away(latest);  // the destructor removes it
  files_.sync_folder(path_);
}

void CheckpointFolder::remove_leftovers() {
  if (files_.type(path_) == Type::NONE) return;
  const std::string mine = kTemporary + run_id_ + '-';
  for (const FileSystem::Item& item : files_.list(path_)) {
    if (!is_leftover_name(item.name)) continue;
    const fs::path path = path_ / item.name;
    const util::FileLock lock(path, util::FileLock::Kind::FOLDER);
    const bool unlocked = lock.state() == util::FileLock::State::HELD;
    const bool unlockable = lock.state() == util::FileLock::State::UNKNOWN || item.type == Type::LINK;
    if (unlocked || (item.name.starts_with(mine) && unlockable)) files_.remove(path);
  }
}

}  // namespace composer::saving
