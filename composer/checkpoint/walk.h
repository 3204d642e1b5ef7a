#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "composer/checkpoint/file_system.h"
#include "composer/core/export.h"

namespace composer::saving {

// Prefix of the names of paths that are being written, or were being written when their process was killed.
constexpr const char* kTemporary = ".tmp-";

// A path below a save folder.
struct Below {
  enum class Kind : std::uint8_t {
    CHECKPOINT,  // a folder with a manifest, complete or damaged
    LEFTOVER,    // under a temporary name
    UNREADABLE,  // a folder without read permission, such as lost+found
    OTHER,       // files, links, other folders
  };
  std::filesystem::path path;
  Kind kind = Kind::OTHER;
};

// Lists everything below a save folder, sorted by path. Names of checkpoints may contain folders, so it enters all
// folders other than checkpoints and leftovers. Links are not followed. Paths removed meanwhile are omitted. A missing
// folder, or a file in its place, counts as empty. Throws FileError for everything else that cannot be read.
COMPOSER_EXPORT std::vector<Below> walk(const std::filesystem::path& folder, FileSystem& files = real_files());
// The paths of one kind.
COMPOSER_EXPORT std::vector<std::filesystem::path> paths_below(const std::filesystem::path& folder, Below::Kind kind,
                                                               FileSystem& files = real_files());

}  // namespace composer::saving
