#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "composer/checkpoint/file_system.h"
#include "composer/core/export.h"

namespace composer::saving {

// Names of paths that are being written, or were when their process was killed, begin with this.
constexpr const char* kTemporary = ".tmp-";

// Something below a save folder.
struct Below {
  enum class Kind : std::uint8_t {
    CHECKPOINT,  // a folder with a manifest, whole or damaged
    LEFTOVER,    // under a temporary name
    UNREADABLE,  // a folder without permission to look into it, as lost+found
    OTHER,       // files, links, other folders
  };
  std::filesystem::path path;
  Kind kind = Kind::OTHER;
};

// Everything below a save folder, in the order of the paths. Names of checkpoints may have folders in them, so folders
// are entered, except for checkpoints and leftovers; links are not followed. What others remove meanwhile is left out.
// A missing folder, or a file in its place, is empty. Throws FileError for everything else that cannot be read.
COMPOSER_EXPORT std::vector<Below> walk(const std::filesystem::path& folder, FileSystem& files = real_files());
// Those of one kind.
COMPOSER_EXPORT std::vector<std::filesystem::path> paths_below(const std::filesystem::path& folder, Below::Kind kind,
                                                               FileSystem& files = real_files());

}  // namespace composer::saving
