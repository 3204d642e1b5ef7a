#include "composer/callbacks/background_files.h"

#include <exception>
#include <utility>

#include "composer/core/error.h"

namespace composer::callbacks {

BackgroundFiles::BackgroundFiles(std::size_t capacity, Lost lost)
    : lost_(std::move(lost)),
      queue_([this](std::span<Job> jobs) { write_all(jobs); }, {.delay = {}, .capacity = capacity}) {}

void BackgroundFiles::send(std::filesystem::path path, Write write) {
  queue_.send({std::move(path), std::move(write)});
  warn_of_failures();
}

void BackgroundFiles::wait() {
  queue_.sync();
  warn_of_failures();
}

void BackgroundFiles::write_all(std::span<Job> jobs) {
  for (Job& job : jobs) try {
      job.write(job.path);
    } catch (const std::exception& error) {
      const std::lock_guard lock(mutex_);
      failures_.push_back(join(lost_(job.path.string()), ": ", describe(error)));
    }
}

void BackgroundFiles::warn_of_failures() {
  std::vector<std::string> failures;
  {
    const std::lock_guard lock(mutex_);
    failures.swap(failures_);
  }
  for (const std::string& failure : failures) warn(failure);
}

}  // namespace composer::callbacks
