#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "composer/checkpoint/file_system.h"
#include "composer/core/export.h"
#include "composer/core/time.h"

namespace composer::saving {

// Appended to the name of a damaged checkpoint once the run has gone back to an earlier one. It does not conflict with
// later checkpoints.
inline constexpr const char* kDamaged = ".damaged";

// Something in a save folder that prevents a later checkpoint from being written.
struct Conflict {
  std::filesystem::path path;
  std::string reason;    // for example "was not written by this run"
  bool foreign = true;   // false: it could not be read, so it may be this run's own
  bool damaged = false;  // a checkpoint with a damaged manifest
};

// Returns the first path in the folder whose name `format` produces later than `now`, unless it is a checkpoint of this
// run.
COMPOSER_EXPORT std::optional<Conflict> find_conflict(const std::filesystem::path& folder, const std::string& format,
                                                      const std::string& run_name, const Timestamp& now,
                                                      const std::string& run_id, FileSystem& files = real_files());

// Whether `format` could produce this name for a checkpoint: placeholders stand for any counts.
COMPOSER_EXPORT bool is_name_of(const std::string& format, const std::string& run_name, const std::string& name);

// Throws ConfigError for a placeholder that format_name() does not know.
COMPOSER_EXPORT void check_format(const std::string& option, const std::string& format, bool with_time);

}  // namespace composer::saving
