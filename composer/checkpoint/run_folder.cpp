#include "composer/checkpoint/run_folder.h"

#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "composer/checkpoint/conflicts.h"
#include "composer/checkpoint/folder.h"
#include "composer/checkpoint/name_format.h"
#include "composer/checkpoint/run_lock.h"
#include "composer/checkpoint/saver.h"
#include "composer/core/error.h"

namespace composer::saving {
namespace {

bool is_there(const std::filesystem::path& folder, const Manifest& manifest, FileSystem& files) {
  try {
    return open_checkpoint(folder / manifest.name, files).manifest.id == manifest.id;
  } catch (const CheckpointError&) {
    return false;
  }
}

// Whether `name` is `other`, or a name that SavedList::choose_name() makes of it.
bool is_or_follows(std::string_view name, std::string_view other) {
  if (name == other) return true;
  if (!name.starts_with(other) || name.size() < other.size() + 2 || name[other.size()] != '-') return false;
  return name.find_first_not_of("0123456789", other.size() + 1) == std::string_view::npos;
}

[[noreturn]] void fail_unseen(const Found& found) {
  throw CheckpointError("save_folder: ", found.path.string(), " was written by another Trainer that resumed this ",
                        "run; make this Trainer again, so that it resumes from there, or train with the other one");
}

// An unreadable checkpoint does not count as one under its new name.
void rename_damaged(const std::filesystem::path& path, const std::string& why, FileSystem& files) {
  std::filesystem::path to = path;
  to += kDamaged;
  for (int number = 2; files.type(to) != FileSystem::Type::NONE; ++number)
    to = join(path.string(), kDamaged, '-', number);
  files.rename(path, to);
  const std::filesystem::path manifest = to / Manifest::kFileName;
  files.rename(manifest, manifest.string() + kDamaged);
  warn(join("checkpoint: ", path.string(), " ", why, "; it is ", to.string(), " from now on"));
}

}  // namespace

RunFolder::RunFolder(Saver& saver, Run run, const ResumePoint& from)
    : saver_(saver), run_(std::move(run)), seen_(from.seen) {
  if (!from.found) return;
  resumed_ = from.found->manifest;
  saver_.list().adopt(*resumed_);
}

RunFolder::~RunFolder() = default;

std::vector<Found> RunFolder::all() const {
  return checkpoints_of_saver(saver_.options().folder, saver_.writer().files());
}

// Another trainer that begins the run at the same time gives it a different id.
std::vector<Found> RunFolder::all_seen() const {
  std::vector<Found> there = all();
  if (!seen_) return there;
  const SaverOptions& own = saver_.options();
  for (const Found& found : there) {
    const Manifest& one = found.manifest;
    const bool is_of_run = one.run_id == own.run_id || (one.run_name == run_.name && run_.resumes && !own.overwrite);
    if (is_of_run && !one.weights_only && !seen_->contains(one.id) && !saver_.list().knows(one.id)) fail_unseen(found);
  }
  return there;
}

void RunFolder::make_and_lock() {
  saver_.writer().folder().probe();
  lock_ = std::make_unique<RunLock>(saver_.options().folder, run_.name);
}

void RunFolder::lock() {
  if (lock_) return;
  locks_ = true;
  try {
    make_and_lock();
  } catch (const std::filesystem::filesystem_error& error) {
    fail(error);
  }
}

void RunFolder::unlock() {
  lock_.reset();
  locks_ = false;
}

RunFolder::ShortLock RunFolder::lock_between_fits() {
  if (lock_) return {};
  ShortLock locked(this);
  lock();
  if (!lock_) return locked;
  check_newest();
  for (const Found& found : all_seen())
    if (run_.goes_back && found.manifest.run_id == saver_.options().run_id) saver_.list().count_from(found.manifest);
  return locked;
}

// Errors are reported when the checkpoint is written.
void RunFolder::lock_if_missed() {
  if (lock_ || !locks_) return;
  try {
    make_and_lock();
    check_newest();
  } catch (const std::filesystem::filesystem_error&) {
    lock_.reset();
  } catch (...) {
    lock_.reset();
    throw;
  }
}

void RunFolder::fail(const std::exception& error) const {
  const SaverOptions& own = saver_.options();
  const std::string what =
      join(own.names.name("folder"), ": ", own.folder.string(), ": cannot write checkpoints there");
  if (own.on_failure != OnFailure::CONTINUE) throw_nested<CheckpointError>(what);
  warn(join(what, " yet: ", error.what()));
}

bool RunFolder::is_lost() const { return lock_ && !lock_->is_in_place(); }

void RunFolder::replace_lost() {
  warn(join("save_folder: ", saver_.options().folder.string(),
            " was renamed, or it or its lock was removed, while the ",
            "run trains; checkpoints go on in a folder of that name, and those before are where the old one is"));
  unlock();
  lock();
}

void RunFolder::delete_later() {
  const SaverOptions& own = saver_.options();
  SavedList& list = saver_.list();
  std::vector<std::string> retired = list.retired();
  for (const Found& found : all_seen()) {
    const Manifest& one = found.manifest;
    if (one.run_id != own.run_id || (resumed_ && !is_older(*resumed_, one))) continue;
    if (!one.by_hand && is_or_follows(one.name, format_name(run_.filename, run_.name, &one.time)))
      retired.push_back(one.name);
    else
      list.count_from(one);
    if (!one.by_hand) continue;
    const Saved* const known = list.find(one.name);
    if (!known || !known->by_hand) list.keep_later(one);
  }
  list.set_retired(retired);
  if (!retired.empty()) saver_.writer().link_latest(resumed_ ? resumed_->name : "", run_.name);
  saver_.clean_up();
}

// Before the first fit and between fits the folder is not locked, and another process or Trainer may train the run.
void RunFolder::check_newest() const {
  if (!resumed_ && saver_.list().newest().empty()) return;
  const SaverOptions& own = saver_.options();
  FileSystem& files = saver_.writer().files();
  const auto is_own = [&](const Manifest& manifest) {
    const bool is_later = run_.goes_back && resumed_ && is_older(*resumed_, manifest);
    return manifest.run_id == own.run_id && !manifest.weights_only && !is_later;
  };
  const auto newest = find_latest(own.folder, own.latest, is_own, files);
  if (newest && saver_.list().knows(newest->manifest.id)) return;
  if (!resumed_) {
    if (newest) fail_unseen(*newest);
    return;
  }
  // A downloaded checkpoint is newer than those that this machine had before, to one of which the link still leads.
  if (newest && is_older(newest->manifest, *resumed_) && is_there(own.folder, *resumed_, files)) return;
  throw CheckpointError("save_folder: ", (own.folder / resumed_->name).string(), ", from which this run was resumed, ",
                        newest ? join("is not its newest checkpoint any more: ", newest->path.string(), " is")
                               : std::string("does not exist any more"),
                        "; make the Trainer again, so that it resumes from what is there now");
}

void RunFolder::check_conflicts(const Timestamp& now) const {
  const SaverOptions& own = saver_.options();
  const auto find = [&] {
    return find_conflict(own.folder, run_.filename, run_.name, now, own.run_id, saver_.writer().files());
  };
  auto conflict = find();
  for (; conflict && conflict->damaged && resumed_ && lock_; conflict = find())
    rename_damaged(conflict->path, conflict->reason, saver_.writer().files());
  if (!conflict || (own.overwrite && conflict->foreign)) return;
  const OptionNames& names = own.names;
  const bool never_resumes = run_.weights_only && conflict->foreign && names.are_of_trainer();
  throw ConfigError(
      names.name("folder"), ": ", conflict->path.string(), ' ', conflict->reason,
      ", and has the name of a later checkpoint of this run; ",
      conflict->foreign ? join("set another folder, or ", names.prefix, "overwrite")
                        : "restore or remove it, or set another folder",
      never_resumes ? " (with save_weights_only a run is never resumed: it starts from scratch each time)" : "");
}

void RunFolder::link_best() {
  if (lock_ || !saver_.options().names.are_of_trainer()) return saver_.link_best();
  try {
    const RunLock lock(saver_.options().folder, run_.name);
    check_newest();
    saver_.link_best();
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): the next fit moves it
  }
}

}  // namespace composer::saving
