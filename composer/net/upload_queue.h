#pragma once
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "composer/core/export.h"
#include "composer/net/remote_store.h"

namespace composer::net {

// A change of a RemoteStore, run on the queue's thread.
struct Upload {
  std::string what;  // for messages, such as the file's name
  std::function<void(RemoteStore& store, const std::stop_token& stop)> run;
  // Also called on the queue's thread, with the reason, if run() threw or the upload was dropped.
  std::function<void(const std::string& reason)> failed = {};
};

struct UploadQueueOptions {
  std::string owner = "upload";  // how warnings begin
  std::size_t capacity = 1024;   // >= 1; number of uploads that may wait; further ones are dropped
};

// Makes changes of a RemoteStore in the order in which they were sent, on one background thread. The sender never waits
// for the store. The first failure becomes a warning at once; failures() lists them all. Use from one thread.
class COMPOSER_EXPORT UploadQueue {
 public:
  using Duration = std::chrono::duration<double>;
  struct Failure {
    std::string what, reason;
  };

  UploadQueue(std::unique_ptr<RemoteStore> store, UploadQueueOptions options);
  ~UploadQueue();  // cancels the remaining uploads
  UploadQueue(const UploadQueue&) = delete;
  UploadQueue& operator=(const UploadQueue&) = delete;

  void send(Upload upload);
  // Returns true once every upload was done or has failed, false if that takes longer than the limit.
  bool drain(Duration limit);
  // Cancels uploads that are not done within the limit; they count as failed. Nothing may be sent afterwards.
  void end(Duration limit);
  std::vector<Failure> failures() const;

 private:
  struct Shared;
  struct Thread;
  std::shared_ptr<Shared> shared_;
  std::unique_ptr<Thread> thread_;
};

// The text "3 files were not uploaded to s3://bucket", with a line of names for each reason, for an error at the end of
// a run.
COMPOSER_EXPORT std::string text_of(const std::vector<UploadQueue::Failure>& failures, const std::string& uri,
                                    std::string_view noun = "file");

}  // namespace composer::net
