#pragma once
// The data that a remote mirror's upload thread works with. Internal.
#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "composer/checkpoint/folder.h"
#include "composer/net/remote_store.h"
#include "composer/remote/owner.h"

namespace composer::remote {

namespace fs = std::filesystem;
using saving::Found;
using saving::Manifest;

// Hard links to the files of a checkpoint, or copies if the file system has no links. The destructor removes them.
class Links {
 public:
  Links(const Found& checkpoint, fs::path folder) : folder_(std::move(folder)) {
    remove();
    try {
      fs::create_directories(folder_);
      for (const Manifest::File& file : checkpoint.manifest.files) link(checkpoint.path, file.name);
      link(checkpoint.path, Manifest::kFileName);
    } catch (...) {  // the checkpoint may have been deleted meanwhile
      remove();
      throw;
    }
  }
  ~Links() { remove(); }
  Links(const Links&) = delete;
  Links& operator=(const Links&) = delete;
  fs::path operator/(const std::string& name) const { return folder_ / name; }

 private:
  void link(const fs::path& from, const std::string& name) const {
    std::error_code error;
    fs::create_hard_link(from / name, folder_ / name, error);
    if (error) fs::copy_file(from / name, folder_ / name);
  }
  void remove() const {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  fs::path folder_;
};

// State shared between the queue's thread and the Saver's.
class Shared {
 public:
  Shared(bool overwrites, const std::string& run_name) : overwrite(overwrites), owner(run_name) {}

  const bool overwrite;
  RemoteOwner owner;  // used only by the queue's thread

  void set_run(const std::string& id) {
    const std::lock_guard lock(mutex_);
    run_id_ = id;
  }
  bool is_of_run(const Manifest& manifest) {
    const std::lock_guard lock(mutex_);
    return manifest.run_id == run_id_;
  }
  void saved(const std::string& name, const std::vector<std::string>& retired) {
    const std::lock_guard lock(mutex_);
    retired_.erase(name), due_.erase(name);
    retired_.insert(retired.begin(), retired.end());
  }
  void retire(const std::vector<std::string>& names) {
    const std::lock_guard lock(mutex_);
    retired_.insert(names.begin(), names.end());
  }
  bool is_retired(const std::string& name) {
    const std::lock_guard lock(mutex_);
    return retired_.contains(name);
  }
  std::vector<std::string> retired() {
    const std::lock_guard lock(mutex_);
    return {retired_.begin(), retired_.end()};
  }
  // Marks copies for deletion after the next upload, except those of checkpoints with these names that have been saved
  // since.
  void set_due(const std::vector<std::string>& names) {
    const std::lock_guard lock(mutex_);
    if (!may_delete_) return;
    for (const std::string& name : names)
      if (retired_.contains(name)) due_.insert(name);
  }
  std::optional<std::string> next_due() {
    const std::lock_guard lock(mutex_);
    return due_.empty() ? std::nullopt : std::optional(*due_.begin());
  }
  void set_deleted(const std::string& name) {
    const std::lock_guard lock(mutex_);
    if (due_.erase(name) != 0) retired_.erase(name);
    told_undeleted_ = false;
  }
  // Stops deletions until the process ends. The names stay retired.
  void forbid_deletions() {
    const std::lock_guard lock(mutex_);
    may_delete_ = false;
    due_.clear();
  }
  // Whether a warning about undeleted copies was given since the last deletion.
  bool told_undeleted() {
    const std::lock_guard lock(mutex_);
    return std::exchange(told_undeleted_, true);
  }
  void set_lost(const std::string& reason) {
    const std::lock_guard lock(mutex_);
    lost_ = reason;
    is_lost_ = true;
  }
  std::optional<std::string> lost() {
    if (!is_lost_) return std::nullopt;
    const std::lock_guard lock(mutex_);
    return lost_;
  }

 private:
  std::atomic<bool> is_lost_ = false;
  std::mutex mutex_;  // guards the following members
  bool may_delete_ = true, told_undeleted_ = false;
  std::string run_id_, lost_;
  std::set<std::string> retired_, due_;  // names whose copies may exist; the copies of due_ are to be deleted
};

// Throws CheckpointError if another process owns the run, and records that in `shared`.
void hold(net::RemoteStore& store, Shared& shared, const std::stop_token& stop);

// Uploads a checkpoint unless that is no longer useful. Returns false if the checkpoint was deleted meanwhile. `files`
// makes links to its files, or returns null if they have been deleted. Throws CheckpointError if a checkpoint of
// another run has the name.
bool upload(net::RemoteStore& store, const Found& checkpoint, const std::function<std::shared_ptr<Links>()>& files,
            const std::string& name, bool is_new, Shared& shared, const std::stop_token& stop);

// Deletes the copies that are due. A failure is a warning, because the preceding upload has succeeded. Later
// checkpoints contain the names of the copies that could not be deleted, which are deleted later.
void delete_due(net::RemoteStore& store, Shared& shared, const std::stop_token& stop);

}  // namespace composer::remote
