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

// Files that a thread of its own writes, in order, while training goes on. Failures become warnings of the thread that
// trains, where the user's handler of warnings is: at the next call, or when everything is waited for.
class BackgroundFiles {
 public:
  // May choose another path than was asked for, which a failure then names.
  using Write = std::function<void(std::filesystem::path& path)>;
  using Lost = std::function<std::string(const std::string& path)>;  // what is told of a file that was not written

  // `capacity` >= 1: files that wait; while there are as many, send() waits, too.
  BackgroundFiles(std::size_t capacity, Lost lost);

  void send(std::filesystem::path path, Write write);
  void wait();  // until all that were sent are written or lost

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
  util::BackgroundQueue<Job> queue_;  // the last, because its thread uses the others
};

}  // namespace composer::callbacks
