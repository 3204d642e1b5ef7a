#include <algorithm>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "composer/checkpoint/folder.h"
#include "composer/core/error.h"
#include "composer/net/upload_queue.h"
#include "composer/trainer/remote_checkpoints.h"

namespace composer {

namespace {

namespace fs = std::filesystem;
using saving::Found;
using saving::Manifest;
using Duration = std::chrono::duration<double>;

constexpr Duration kLongestClose{60};  // after an error

const std::string kManifest = std::string("/") + Manifest::kFileName;

// The manifest of a complete checkpoint; nullopt: there is none.
std::optional<Manifest> remote_manifest(net::RemoteStore& store, const std::string& name, const std::stop_token& stop) {
  if (!store.size(name + kManifest, stop)) return std::nullopt;
  return read_manifest(store, name, stop);
}

// Hard links to the files of a checkpoint, or copies where the file system has no links; removed at the end.
class Links {
 public:
  Links(const Found& checkpoint, fs::path folder) : folder_(std::move(folder)) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    for (const Manifest::File& file : checkpoint.manifest.files) link(checkpoint.path, file.name);
    link(checkpoint.path, Manifest::kFileName);
  }
  ~Links() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  Links(const Links&) = delete;
  Links& operator=(const Links&) = delete;
  fs::path operator/(const std::string& name) const { return folder_ / name; }

 private:
  void link(const fs::path& from, const std::string& name) const {
    std::error_code error;
    fs::create_hard_link(from / name, folder_ / name, error);
    if (error) fs::copy_file(from / name, folder_ / name);
  }
  fs::path folder_;
};

// What the queue's thread and the Saver's share.
struct Shared {
  bool overwrite = false;
  std::mutex mutex;  // of the following
  std::string run_id;
  std::set<std::string> superseded;  // retired before they were uploaded
  std::vector<std::string> retired;  // their copies are to be deleted after the next upload

  void set_run(const std::string& id) {
    const std::lock_guard lock(mutex);
    run_id = id;
  }
  bool is_of_run(const Manifest& manifest) {
    const std::lock_guard lock(mutex);
    return manifest.run_id == run_id;
  }
  bool is_superseded(const std::string& name) {
    const std::lock_guard lock(mutex);
    return superseded.contains(name);
  }
  std::optional<std::string> next_retired() {
    const std::lock_guard lock(mutex);
    return retired.empty() ? std::nullopt : std::optional(retired.front());
  }
  void forget_retired(const std::string& name) {
    const std::lock_guard lock(mutex);
    std::erase(retired, name);
  }
  void retire(const std::vector<std::string>& names) {
    const std::lock_guard lock(mutex);
    retired.insert(retired.end(), names.begin(), names.end());
  }
};

// Returns false if there is no need to.
bool upload(net::RemoteStore& store, const Found& checkpoint, const Links& files, const std::string& name,
            Shared& shared, const std::stop_token& stop) {
  if (shared.is_superseded(name)) return false;
  if (const auto before = remote_manifest(store, name, stop)) {
    if (before->id == checkpoint.manifest.id) return true;
    if (!shared.overwrite && !shared.is_of_run(*before))
      throw CheckpointError(store.uri_of(name),
                            " already exists and was not written by this run; use another save_folder or set ",
                            "save_overwrite");
    store.remove(name + kManifest, stop);  // it is incomplete from now on
  }
  for (const Manifest::File& file : checkpoint.manifest.files)
    store.put(files / file.name, name + "/" + file.name, stop);
  store.put(files / Manifest::kFileName, name + kManifest, stop);
  return true;
}

void remove(net::RemoteStore& store, const std::string& name, Shared& shared, const std::stop_token& stop) {
  const auto before = remote_manifest(store, name, stop);
  if (!before || !shared.is_of_run(*before)) return;
  store.remove(name + kManifest, stop);
  for (const net::RemoteFile& file : store.list(name + "/", stop)) store.remove(file.name, stop);
}

class RemoteMirror final : public saving::Mirror {
 public:
  explicit RemoteMirror(RemoteMirrorOptions options)
      : on_failure_(options.on_failure), longest_wait_(options.longest_wait), shared_(std::make_shared<Shared>()) {
    shared_->overwrite = options.overwrite;
    auto store = net::open_store(options.uri, std::move(options.store));
    uri_ = store->uri();
    queue_ = std::make_unique<net::UploadQueue>(std::move(store), net::UploadQueueOptions{.owner = "save_folder"});
  }

  ~RemoteMirror() override {
    queue_->end(kLongestClose);
    if (const auto failures = new_failures(); !failures.empty())
      warn(join("save_folder: ", net::text_of(failures, uri_, "checkpoint")));
  }

  void begin(const fs::path& folder, const std::string& run_id) override {
    folder_ = folder;
    shared_->set_run(run_id);
    if (std::exchange(begun_, true)) return;
    std::error_code ignored;
    fs::remove_all(waiting_folder(folder), ignored);  // of a killed process
    std::vector<Found> own = saving::list_checkpoints(folder);
    std::erase_if(own, [&](const Found& found) { return found.manifest.run_id != run_id; });
    if (!own.empty()) send(folder, own.back().path.lexically_relative(fs::canonical(folder)), {});
  }

  void saved(const fs::path& folder, const std::string& name, const std::vector<std::string>& retired) override {
    send(folder, name, retired);
  }

  void wait(std::optional<Duration> limit) override {
    const Duration longest = limit.value_or(longest_wait_);
    const bool done = queue_->drain(longest);
    std::string text;
    if (const auto failures = new_failures(); !failures.empty()) text = net::text_of(failures, uri_, "checkpoint");
    if (!done)
      text += join(text.empty() ? "" : "\n", "uploads to ", uri_, " are not finished after ", longest.count(), " s");
    if (text.empty()) return;
    text = join("save_folder: ", text, "\n  the checkpoints are in ", folder_.string(),
                "; the next start with this save_folder uploads the newest");
    if (on_failure_ != saving::OnFailure::CONTINUE) throw CheckpointError(text);
    warn(text);
  }

 private:
  static fs::path waiting_folder(const fs::path& folder) { return folder.parent_path() / "waiting"; }

  void send(const fs::path& folder, const std::string& name, const std::vector<std::string>& retired) {
    try {
      send(folder, saving::open_checkpoint(folder / name), name, retired);
    } catch (const std::exception& error) {  // such as a full disk; told as a failed upload
      queue_->send({name, [reason = std::string(error.what())](net::RemoteStore&, const std::stop_token&) {
                      throw CheckpointError(reason);
                    }});
    }
  }

  void send(const fs::path& folder, const Found& found, const std::string& name,
            const std::vector<std::string>& retired) {
    {
      const std::lock_guard lock(shared_->mutex);
      shared_->superseded.erase(name);
      std::erase(shared_->retired, name);
      shared_->superseded.insert(retired.begin(), retired.end());
    }
    auto links = std::make_shared<Links>(found, waiting_folder(folder) / std::to_string(next_++));
    queue_->send(
        {name,
         [found, links, name, retired, shared = shared_](net::RemoteStore& store, const std::stop_token& stop) {
           shared->retire(retired);
           if (!upload(store, found, *links, name, *shared, stop)) return;
           while (const auto old = shared->next_retired()) {
             remove(store, *old, *shared, stop);
             shared->forget_retired(*old);
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
  std::shared_ptr<Shared> shared_;
  std::string uri_;
  fs::path folder_;  // of this machine
  std::unique_ptr<net::UploadQueue> queue_;
  bool begun_ = false;
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
