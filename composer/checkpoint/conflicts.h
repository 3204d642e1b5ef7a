#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "composer/core/export.h"
#include "composer/core/time.h"

namespace composer::saving {

// Whatever lies in the folder under a name that the format would give later than `now`, and is no checkpoint of this
// run: it would be in the way sooner or later.
COMPOSER_EXPORT std::optional<std::filesystem::path> find_conflict(const std::filesystem::path& folder,
                                                                   const std::string& format,
                                                                   const std::string& run_name, const Timestamp& now,
                                                                   const std::string& run_id);

// Throws ConfigError for a placeholder that format_name() does not know.
COMPOSER_EXPORT void check_format(const char* option, const std::string& format, bool with_time);

}  // namespace composer::saving
