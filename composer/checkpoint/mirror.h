#pragma once
#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "composer/core/export.h"

namespace composer::saving {

// Copies the checkpoints of a Saver to another place, such as a bucket. Called from one thread at a time, except for
// undeleted() and check(), which any thread may call.
class COMPOSER_EXPORT Mirror {
 public:
  Mirror() = default;
  Mirror(const Mirror&) = delete;
  Mirror& operator=(const Mirror&) = delete;
  virtual ~Mirror();

  // Called before the first batch of a fit. Copies those checkpoints of `kept`, oldest first, that are in the folder
  // but not in the other place. Then the copies of `retired` are to be deleted.
  virtual void begin(const std::filesystem::path& folder, const std::string& run_id,
                     const std::vector<std::string>& kept, const std::vector<std::string>& retired) = 0;
  // Called when the checkpoint is certain to survive a power failure; it may be deleted once saved() has returned.
  // After it is copied, the copies of `retired` are to be deleted. Returns without waiting for a network, and reports
  // failures by warnings and in wait().
  virtual void saved(const std::filesystem::path& folder, const std::string& name,
                     const std::vector<std::string>& retired) = 0;
  // The retired checkpoints whose copies may still exist.
  virtual std::vector<std::string> undeleted() const = 0;
  // Throws CheckpointError if the run must not continue, because another process saves it to the other place. Does not
  // wait.
  virtual void check() = 0;
  // Returns when everything is copied. Throws CheckpointError for what could not be copied, or not within `limit`.
  virtual void wait(std::optional<std::chrono::duration<double>> limit) = 0;
};

}  // namespace composer::saving
