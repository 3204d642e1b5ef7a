#include "composer/net/upload_queue.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <span>
#include <utility>

#include "composer/core/error.h"
#include "composer/util/background_queue.h"

namespace composer::net {

struct UploadQueue::Shared {
  Shared(std::unique_ptr<RemoteStore> opened, std::string name) : store(std::move(opened)), owner(std::move(name)) {}

  void run(Upload& upload) {
    if (stop.stop_requested()) return fail(upload, "there was no time left");
    try {
      upload.run(*store, stop.get_token());
    } catch (const Cancelled&) {
      fail(upload, "there was no time left");
    } catch (...) {
      fail(upload, describe(std::current_exception()));
    }
  }

  void fail(const Upload& upload, const std::string& reason) {
    const bool is_first = [&] {
      const std::lock_guard lock(mutex);
      failures.push_back({upload.what, reason});
      return !std::exchange(warned, true);
    }();
    if (is_first) warn(join(owner, ": ", upload.what, " was not uploaded: ", reason));
    if (upload.failed) upload.failed(reason);  // without the lock, because it may call failures()
  }

  const std::unique_ptr<RemoteStore> store;  // used by the queue's thread only
  const std::string owner;
  std::stop_source stop;
  std::mutex mutex;  // guards everything below
  bool warned = false;
  std::vector<Failure> failures;
};

struct UploadQueue::Thread {
  Thread(const std::shared_ptr<Shared>& shared, std::size_t capacity)
      : queue(
            [shared](std::span<Upload> uploads) {
              for (Upload& upload : uploads) {
                shared->run(upload);
                upload = {};
              }
            },
            {.delay = Duration(0), .capacity = capacity, .when_full = util::FullQueue::DROP_NEWEST}) {}
  util::BackgroundQueue<Upload> queue;
};

UploadQueue::UploadQueue(std::unique_ptr<RemoteStore> store, UploadQueueOptions options)
    : shared_(std::make_shared<Shared>(std::move(store), std::move(options.owner))) {
  if (options.capacity < 1) throw ConfigError(shared_->owner, ": capacity must be >= 1, got ", options.capacity);
  thread_ = std::make_unique<Thread>(shared_, options.capacity);
}

UploadQueue::~UploadQueue() { end(Duration(0)); }

void UploadQueue::send(Upload upload) {
  if (!thread_) return shared_->fail(upload, "the queue has ended");
  const std::uint64_t dropped = thread_->queue.dropped();
  Upload copy{upload.what, {}, upload.failed};
  thread_->queue.send(std::move(upload));
  if (thread_->queue.dropped() != dropped) shared_->fail(copy, "too many uploads wait");
}

bool UploadQueue::drain(Duration limit) { return !thread_ || thread_->queue.sync(limit); }

void UploadQueue::end(Duration limit) {
  if (!thread_) return;
  if (!thread_->queue.sync(limit)) {
    shared_->stop.request_stop();  // cancels the current upload; the remaining ones fail at once
    thread_->queue.end({});
  }
  thread_.reset();
}

std::vector<UploadQueue::Failure> UploadQueue::failures() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->failures;
}

namespace {

std::string replaced(std::string text, const std::string& name, const std::string& by) {
  if (name.empty()) return text;
  for (auto at = text.find(name); at != std::string::npos; at = text.find(name, at + by.size()))
    text.replace(at, name.size(), by);
  return text;
}

}  // namespace

std::string text_of(const std::vector<UploadQueue::Failure>& failures, const std::string& uri, std::string_view noun) {
  constexpr std::size_t kMost = 5;
  struct Group {
    std::string names, reason;
    std::size_t size = 0;
  };
  std::vector<std::pair<std::string, Group>> groups;  // by the reason without the file's name
  for (const auto& [what, reason] : failures) {
    const std::string key = replaced(reason, what, "*");
    auto group = std::ranges::find(groups, key, &std::pair<std::string, Group>::first);
    if (group == groups.end()) group = groups.insert(groups.end(), {key, {.reason = reason}});
    Group& same = group->second;
    if (same.size++ < kMost) same.names += (same.names.empty() ? "" : ", ") + what;
  }
  std::string text =
      join(failures.size(), ' ', noun, failures.size() == 1 ? " was" : "s were", " not uploaded to ", uri);
  for (std::size_t i = 0; i < std::min(groups.size(), kMost); ++i) {
    const Group& group = groups[i].second;
    text += "\n  " + group.names;
    if (group.size > kMost) text += join(" and ", group.size - kMost, " more");
    text += ": " + group.reason;
  }
  if (groups.size() > kMost) text += join("\n  and others for ", groups.size() - kMost, " more reasons");
  return text;
}

}  // namespace composer::net
