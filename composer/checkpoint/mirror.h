#pragma once
#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "composer/core/export.h"

namespace composer::saving {

// Copies the checkpoints of a Saver to another place, such as a bucket. Called from one thread at a time.
class COMPOSER_EXPORT Mirror {
 public:
  Mirror() = default;
  Mirror(const Mirror&) = delete;
  Mirror& operator=(const Mirror&) = delete;
  virtual ~Mirror();

  // Before the first batch of a fit: copies the run's newest checkpoint in the folder if the other place lacks it.
  virtual void begin(const std::filesystem::path& folder, const std::string& run_id) = 0;
  // The checkpoint in this folder is certain to survive a loss of power, and may be deleted when saved() has returned.
  // Once it is copied, the copies of `retired` are to be deleted. Returns without waiting for a network, and reports
  // failures by warnings and in wait().
  virtual void saved(const std::filesystem::path& folder, const std::string& name,
                     const std::vector<std::string>& retired) = 0;
  // Returns when everything is copied. Throws CheckpointError for what could not be copied, or not within `limit`.
  virtual void wait(std::optional<std::chrono::duration<double>> limit) = 0;
};

}  // namespace composer::saving
