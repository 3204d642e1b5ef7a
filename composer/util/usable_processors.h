#pragma once
#include <cstdint>
#include <filesystem>

#include "composer/core/export.h"

namespace composer::util {

// The number of processors that this process may use at once: those that the system gives it, or fewer if the CPU quota
// of its control groups (version 2 or 1), such as that of a container, is less. At least 1; a fraction is rounded up.
// `root`: the folder of /proc and /sys, for tests.
COMPOSER_EXPORT std::int64_t usable_processors(const std::filesystem::path& root = "/");

}  // namespace composer::util
