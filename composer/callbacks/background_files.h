#pragma once
#include <cstddef>
#include <filesystem>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "composer/util/background_queue.h"

namespace composer::callbacks {

// Files that a background thread writes, in order, while training continues. Failures become warnings on the training
// thread, where the user's warning handler is set: at the next call, or in wait().
class BackgroundFiles {
 public:
  // Writes a file. May change the path; a warning of a failure then names the new one.
  using Write = std::function<void(std::filesystem::path& path)>;
  // Returns the warning for a file that was not written.
  using Lost = std::function<std::string(const std::string& path)>;

  // `capacity` >= 1: maximum number of queued files; send() waits while the queue is full.
  BackgroundFiles(std::size_t capacity, Lost lost);

  void send(std::filesystem::path path, Write write);
  void wait();  // returns when all files that were sent are written or lost

 private:
  struct Job {
    std::filesystem::path path;
    Write write;
  };
  void write_all(std::span<Job> jobs);
  void warn_of_failures();

  const Lost lost_;
  std::mutex mutex_;
  std::vector<std::string> failures_;
  util::BackgroundQueue<Job> queue_;  // declared last, because its thread uses the other members
};

}  // namespace composer::callbacks
