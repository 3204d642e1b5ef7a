#include <algorithm>
#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "composer/checkpoint/folder.h"
#include "composer/checkpoint/saver.h"
#include "composer/core/error.h"
#include "composer/net/upload_queue.h"
#include "composer/trainer/remote_checkpoints.h"
#include "composer/trainer/remote_owner.h"
#include "composer/util/checksum.h"

namespace composer {

namespace {

namespace fs = std::filesystem;
using saving::Found;
using saving::Manifest;
using Duration = std::chrono::duration<double>;

constexpr Duration kLongestClose{60};    // after an error
constexpr Duration kLongestRelease{10};  // of the owner's file
constexpr std::size_t kMostKept = 512;   // so that the queue has room for others

const std::string kManifest = std::string("/") + Manifest::kFileName;

// The manifest of a complete checkpoint; nullopt: there is none.
std::optional<Manifest> remote_manifest(net::RemoteStore& store, const std::string& name, const std::stop_token& stop) {
  if (!store.size(name + kManifest, stop)) return std::nullopt;
  return read_manifest(store, name, stop);
}

// Runs of other names may save below the same URI.
std::string waiting_folder_of(const std::string& run_name) {
  util::Checksum sum;
  sum.update(run_name.data(), run_name.size());
  const std::string text = sum.text();
  return "waiting-" + text.substr(text.find(':') + 1);
}

// Hard links to the files of a checkpoint, or copies where the file system has no links; removed at the end.
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

// What the queue's thread and the Saver's share.
class Shared {
 public:
  Shared(bool overwrites, const std::string& run_name) : overwrite(overwrites), owner(run_name) {}

  const bool overwrite;
  RemoteOwner owner;  // used by the queue's thread

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
  // Their copies are to be deleted after the next upload, unless checkpoints of these names have been saved since.
  void set_due(const std::vector<std::string>& names) {
    const std::lock_guard lock(mutex_);
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
  std::mutex mutex_;  // of the following
  std::string run_id_, lost_;
  std::set<std::string> retired_, due_;  // copies may exist of both; those of due_ are to be deleted
};

void hold(net::RemoteStore& store, Shared& shared, const std::stop_token& stop) {
  try {
    shared.owner.hold(store, stop);
  } catch (const CheckpointError& taken_over) {
    shared.set_lost(taken_over.what());
    throw;
  }
}

// Returns false if there is no need to. `files` makes links to the checkpoint's files.
bool upload(net::RemoteStore& store, const Found& checkpoint, const std::function<std::shared_ptr<Links>()>& files,
            const std::string& name, bool is_new, Shared& shared, const std::stop_token& stop) {
  if (shared.is_retired(name)) return false;
  hold(store, shared, stop);
  const auto before = remote_manifest(store, name, stop);
  if (before && before->id == checkpoint.manifest.id) return true;
  // Another machine may have gone on from an earlier checkpoint: what this one has had is then of no use any more.
  if (before && !is_new && shared.is_of_run(*before) && before->time.batch >= checkpoint.manifest.time.batch)
    return true;
  if (before && !shared.overwrite && !shared.is_of_run(*before))
    throw CheckpointError(store.uri_of(name),
                          " already exists and was not written by this run; use another save_folder or set ",
                          "save_overwrite");
  const std::shared_ptr<Links> links = files();
  if (!links) return false;
  if (before) store.remove(name + kManifest, stop);  // it is incomplete from now on
  for (const Manifest::File& file : checkpoint.manifest.files)
    store.put(*links / file.name, name + "/" + file.name, stop);
  hold(store, shared, stop);  // again: large files take long
  store.put(*links / Manifest::kFileName, name + kManifest, stop);
  return true;
}

// Also what a killed upload has left.
void remove(net::RemoteStore& store, const std::string& name, Shared& shared, const std::stop_token& stop) {
  const auto before = remote_manifest(store, name, stop);
  if (before && !shared.is_of_run(*before)) return;
  if (before) store.remove(name + kManifest, stop);
  std::vector<std::string> parts = {saving::kModelFile, saving::kStateFile, Manifest::kFileName};
  if (before)
    for (const Manifest::File& file : before->files) parts.push_back(file.name);
  const std::string prefix = name + "/";
  for (const net::RemoteFile& file : store.list(prefix, stop)) {
    const bool is_part = std::ranges::any_of(parts, [&](const std::string& part) {  // or its temporary file
      return file.name.starts_with(prefix + part);
    });
    if (is_part) store.remove(file.name, stop);
  }
}

class RemoteMirror final : public saving::Mirror {
 public:
  explicit RemoteMirror(RemoteMirrorOptions options)
      : on_failure_(options.on_failure),
        longest_wait_(options.longest_wait),
        waiting_(waiting_folder_of(options.run_name)),
        shared_(std::make_shared<Shared>(options.overwrite, options.run_name)) {
    auto store = net::open_store(options.uri, std::move(options.store));
    uri_ = store->uri();
    queue_ = std::make_unique<net::UploadQueue>(std::move(store), net::UploadQueueOptions{.owner = "save_folder"});
  }

  ~RemoteMirror() override {
    try {
      end();
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch): of a forked process, which uploads nothing
    }
  }

  void begin(const fs::path& folder, const std::string& run_id, const std::vector<std::string>& kept,
             const std::vector<std::string>& retired) override {
    folder_ = folder;
    shared_->set_run(run_id);
    own();
    if (std::exchange(begun_, true)) return;
    std::error_code ignored;
    fs::remove_all(waiting_folder(), ignored);  // of a killed process
    remove_leftover_downloads(folder);
    shared_->retire(retired);
    const std::size_t first = kept.size() - std::min(kept.size(), kMostKept);
    for (std::size_t i = first; i < kept.size(); ++i)
      send_kept(kept[i], i + 1 == kept.size() ? retired : std::vector<std::string>());
  }

  void saved(const fs::path& folder, const std::string& name, const std::vector<std::string>& retired) override {
    if (shared_->lost()) return;
    shared_->saved(name, retired);
    try {
      const Found found = saving::open_checkpoint(folder / name);
      auto links = std::make_shared<Links>(found, next_waiting());
      send(found, name, /*is_new=*/true, retired, [links] { return links; });
    } catch (const std::exception& error) {  // such as a full disk; reported as a failed upload
      queue_->send({name, [reason = std::string(error.what())](net::RemoteStore&, const std::stop_token&) {
                      throw CheckpointError(reason);
                    }});
    }
  }

  std::vector<std::string> undeleted() const override { return shared_->retired(); }

  void check() override {
    const auto lost = shared_->lost();
    if (!lost) return;
    if (on_failure_ != saving::OnFailure::CONTINUE) throw CheckpointError(*lost);
    if (!std::exchange(told_lost_, true)) warn(*lost);
  }

  void wait(std::optional<Duration> limit) override {
    const Duration longest = limit.value_or(longest_wait_);
    const auto start = std::chrono::steady_clock::now();
    const bool done = queue_->drain(longest);
    gave_up_ = !done || !release(longest - (std::chrono::steady_clock::now() - start));
    std::string text;
    if (const auto failures = new_failures(); !failures.empty()) text = net::text_of(failures, uri_, "checkpoint");
    if (!done)
      text += join(text.empty() ? "" : "\n", "uploads to ", uri_, " are not finished after ", longest.count(), " s");
    if (text.empty()) return;
    text = join("save_folder: ", text, "\n  the checkpoints are in ", folder_.string(),
                "; the next start with this save_folder uploads what is missing");
    if (on_failure_ != saving::OnFailure::CONTINUE) throw CheckpointError(text);
    warn(text);
  }

 private:
  fs::path waiting_folder() const { return folder_.parent_path() / waiting_; }
  fs::path next_waiting() { return waiting_folder() / std::to_string(next_++); }

  void end() {
    if (queue_->drain(gave_up_ ? Duration(0) : kLongestClose)) release(kLongestRelease);
    queue_->end(Duration(0));
    if (const auto failures = new_failures(); !failures.empty())
      warn(join("save_folder: ", net::text_of(failures, uri_, "checkpoint")));
  }

  // Early, so that another process that saves the run learns of it. If this fails, the next upload does it.
  void own() {
    const auto now = RemoteOwner::Clock::now();
    queue_->send({"the owner", [shared = shared_, now](net::RemoteStore& store, const std::stop_token& stop) {
                    if (shared->lost()) return;
                    shared->owner.begin(now);
                    try {
                      hold(store, *shared, stop);
                    } catch (const Error&) {  // NOLINT(bugprone-empty-catch): the next upload reports it
                    }
                  }});
  }

  // If this fails, the next process may warn that it has taken the run over. Returns false if it is not done in time.
  bool release(Duration limit) {
    queue_->send({"the owner", [shared = shared_](net::RemoteStore& store, const std::stop_token& stop) {
                    try {
                      shared->owner.release(store, stop);
                    } catch (const Error&) {  // NOLINT(bugprone-empty-catch)
                    }
                  }});
    return queue_->drain(std::min(limit, kLongestRelease));
  }

  // Links are made when its turn comes: most are in the bucket already.
  void send_kept(const std::string& name, const std::vector<std::string>& retired) {
    std::error_code ignored;
    if (!fs::exists(folder_ / name, ignored)) return shared_->set_due(retired);  // it is in the bucket alone
    try {
      const Found found = saving::open_checkpoint(folder_ / name);
      send(found, name, /*is_new=*/false, retired, [found, waiting = next_waiting()]() -> std::shared_ptr<Links> {
        const auto is_same = [&](const fs::path& path) {
          return saving::open_checkpoint(path).manifest.id == found.manifest.id;
        };
        try {
          auto links = std::make_shared<Links>(found, waiting);
          if (is_same(waiting)) return links;
        } catch (const std::exception&) {
          if (fs::exists(found.path) && is_same(found.path)) throw;
        }
        return nullptr;  // it was deleted or replaced meanwhile
      });
    } catch (const CheckpointError& error) {
      warn(join("save_folder: ", name, " is not uploaded: ", error.what()));
      shared_->set_due(retired);
    }
  }

  void send(const Found& found, const std::string& name, bool is_new, const std::vector<std::string>& retired,
            const std::function<std::shared_ptr<Links>()>& files) {
    queue_->send(
        {name,
         [found, name, is_new, retired, files, shared = shared_](net::RemoteStore& store, const std::stop_token& stop) {
           shared->set_due(retired);
           if (!upload(store, found, files, name, is_new, *shared, stop)) return;
           while (const auto old = shared->next_due()) {
             hold(store, *shared, stop);
             try {
               remove(store, *old, *shared, stop);
             } catch (const ConfigError& error) {  // the name comes from a checkpoint, which may be forged
               warn(join("save_folder: ", error.what(), "; nothing is deleted there"));
             }
             shared->set_deleted(*old);
           }
         },
         {}});
  }

  std::vector<net::UploadQueue::Failure> new_failures() {
    auto all = queue_->failures();
    all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(std::min(told_, all.size())));
    told_ += all.size();
    return all;
  }

  saving::OnFailure on_failure_;
  Duration longest_wait_;
  std::string waiting_;  // name of the folder of links
  std::shared_ptr<Shared> shared_;
  std::string uri_;
  fs::path folder_;  // of this machine
  std::unique_ptr<net::UploadQueue> queue_;
  bool begun_ = false, told_lost_ = false;
  bool gave_up_ = false;  // the last wait() has ended at its limit
  std::size_t next_ = 0, told_ = 0;
};

}  // namespace

std::shared_ptr<saving::Mirror> make_remote_mirror(RemoteMirrorOptions options) {
  if (options.uri.starts_with("http"))
    throw ConfigError("save_folder: ", net::shown_url(options.uri),
                      ": HTTP servers do not list files; use s3://, file:/// or a folder of this machine");
  return std::make_shared<RemoteMirror>(std::move(options));
}

}  // namespace composer
