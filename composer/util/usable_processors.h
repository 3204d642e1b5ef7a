#pragma once
#include <cstdint>
#include <filesystem>

#include "composer/core/export.h"

namespace composer::util {

// How many processors this process may use at once: those that the system gives it, or fewer if the CPU quota of its
// control groups (version 2 or 1), such as that of a container, is less. At least 1; a part of one counts as one.
// `root`: where /proc and /sys are, for tests.
COMPOSER_EXPORT std::int64_t usable_processors(const std::filesystem::path& root = "/");

}  // namespace composer::util
