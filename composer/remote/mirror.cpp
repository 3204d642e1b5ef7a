#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

#include "composer/checkpoint/folder.h"
#include "composer/checkpoint/saver.h"
#include "composer/core/error.h"
#include "composer/net/upload_queue.h"
#include "composer/remote/checkpoints.h"
#include "composer/remote/uploads.h"
#include "composer/util/checksum.h"

namespace composer {

namespace {

namespace fs = std::filesystem;
using remote::Links;
using saving::Found;
using Duration = std::chrono::duration<double>;

constexpr Duration kLongestClose{60};    // after an error
constexpr Duration kLongestRelease{10};  // for the owner's file

// The name includes the run's, because runs with other names may save below the same URI.
std::string waiting_folder_of(const std::string& run_name) {
  util::Checksum sum;
  sum.update(run_name.data(), run_name.size());
  const std::string text = sum.text();
  return "waiting-" + text.substr(text.find(':') + 1);
}

class RemoteMirror final : public saving::Mirror {
 public:
  explicit RemoteMirror(RemoteMirrorOptions options)
      : on_failure_(options.on_failure),
        longest_wait_(options.longest_wait),
        most_first_uploads_(options.most_first_uploads),
        waiting_(waiting_folder_of(options.run_name)),
        shared_(std::make_shared<remote::Shared>(options.overwrite, options.run_name)) {
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
    fs::remove_all(waiting_folder(), ignored);  // left by a killed process
    remove_leftover_downloads(folder);
    shared_->retire(retired);
    const std::size_t together = (kept.size() + most_first_uploads_ - 1) / most_first_uploads_;
    std::vector<Task> tasks;
    for (std::size_t i = 0; i < kept.size(); ++i) {
      const bool is_last = i + 1 == kept.size();
      if (auto task = task_of_kept(kept[i], is_last ? retired : std::vector<std::string>()))
        tasks.push_back(std::move(*task));
      if (is_last || tasks.size() == together) send(std::exchange(tasks, {}));
    }
  }

  void saved(const fs::path& folder, const std::string& name, const std::vector<std::string>& retired) override {
    if (shared_->lost()) return;
    shared_->saved(name, retired);
    try {
      const Found found = saving::open_checkpoint(folder / name);
      auto links = std::make_shared<Links>(found, next_waiting());
      send({task_of(found, name, /*is_new=*/true, retired, [links] { return links; })});
    } catch (const std::exception& error) {  // for example a full disk; reported as a failed upload
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

  // Takes ownership early, so that another process that saves the run notices. If this fails, the next upload does it.
  void own() {
    const auto now = RemoteOwner::Clock::now();
    queue_->send({"the owner", [shared = shared_, now](net::RemoteStore& store, const std::stop_token& stop) {
                    if (shared->lost()) return;
                    shared->owner.begin(now);
                    try {
                      remote::hold(store, *shared, stop);
                    } catch (const Error&) {  // NOLINT(bugprone-empty-catch): the next upload reports it
                    }
                  }});
  }

  // Releases ownership. If this fails, the next process may warn that it has taken the run over. Returns false if it is
  // not done within `limit`.
  bool release(Duration limit) {
    queue_->send({"the owner", [shared = shared_](net::RemoteStore& store, const std::stop_token& stop) {
                    try {
                      shared->owner.release(store, stop);
                    } catch (const Error&) {  // NOLINT(bugprone-empty-catch)
                    }
                  }});
    return queue_->drain(std::min(limit, kLongestRelease));
  }

  // Uploads a checkpoint, then deletes what is due.
  struct Task {
    std::string name;
    std::function<void(net::RemoteStore& store, const std::stop_token& stop)> run;
  };

  // Links are made when the upload's turn comes, because most of these checkpoints are in the bucket already.
  std::optional<Task> task_of_kept(const std::string& name, const std::vector<std::string>& retired) {
    std::error_code ignored;
    if (!fs::exists(folder_ / name, ignored)) {  // it is only in the bucket
      shared_->set_due(retired);
      return std::nullopt;
    }
    try {
      const Found found = saving::open_checkpoint(folder_ / name);
      const auto links = [found, waiting = next_waiting()]() -> std::shared_ptr<Links> {
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
      };
      return task_of(found, name, /*is_new=*/false, retired, links);
    } catch (const CheckpointError& error) {
      warn(join("save_folder: ", name, " is not uploaded: ", error.what()));
      shared_->set_due(retired);
      return std::nullopt;
    }
  }

  Task task_of(const Found& found, const std::string& name, bool is_new, const std::vector<std::string>& retired,
               const std::function<std::shared_ptr<Links>()>& files) {
    return {name, [found, name, is_new, retired, files, shared = shared_](net::RemoteStore& store,
                                                                          const std::stop_token& stop) {
              shared->set_due(retired);
              if (remote::upload(store, found, files, name, is_new, *shared, stop))
                remote::delete_due(store, *shared, stop);
            }};
  }

  // Sends the tasks as one upload. A task that fails does not prevent the others.
  void send(std::vector<Task> tasks) {
    if (tasks.empty()) return;
    if (tasks.size() == 1) return queue_->send({tasks[0].name, tasks[0].run});
    const std::string what = join(tasks[0].name, " and ", tasks.size() - 1, " more");
    queue_->send({what, [tasks = std::move(tasks)](net::RemoteStore& store, const std::stop_token& stop) {
                    std::string failures;
                    for (const Task& task : tasks) try {
                        task.run(store, stop);
                      } catch (const net::Cancelled&) {
                        throw;
                      } catch (const std::exception& error) {
                        failures += join(failures.empty() ? "" : "; ", task.name, ": ", error.what());
                      }
                    if (!failures.empty()) throw CheckpointError(failures);
                  }});
  }

  std::vector<net::UploadQueue::Failure> new_failures() {
    auto all = queue_->failures();
    all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(std::min(told_, all.size())));
    told_ += all.size();
    return all;
  }

  saving::OnFailure on_failure_;
  Duration longest_wait_;
  std::size_t most_first_uploads_;
  std::string waiting_;  // name of the folder of links
  std::shared_ptr<remote::Shared> shared_;
  std::string uri_;
  fs::path folder_;  // on this machine
  std::unique_ptr<net::UploadQueue> queue_;
  bool begun_ = false, told_lost_ = false;
  bool gave_up_ = false;  // the last wait() has reached its limit
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
