#pragma once
#include <cstdint>
#include <filesystem>
#include <system_error>
#include <vector>

#include "composer/core/export.h"

namespace composer::saving {

// What is being written, or was when its process was killed, has a name that begins with this.
constexpr const char* kTemporary = ".tmp-";

enum class Below : std::uint8_t {
  CHECKPOINTS,  // folders with a manifest, whole or damaged
  LEFTOVERS,    // under temporary names
};

// Below a save folder, in the order of their paths. Names may have folders in them; links are not followed, and neither
// checkpoints nor leftovers are looked into. If the folder cannot be listed, `error` says why.
COMPOSER_EXPORT std::vector<std::filesystem::path> paths_below(const std::filesystem::path& folder, Below what,
                                                               std::error_code& error);

}  // namespace composer::saving
